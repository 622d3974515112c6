#include "testing/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/file.h"

namespace trireme::testing {

Process::Process(const std::vector<std::string>& words) : Process(TRIREME_PROGRAM, words) {}

Process::Process(const std::string& command, const std::vector<std::string>& words,
                 const std::vector<std::string>& variables) {
  // Output goes to a file: a child that prints much never waits for a reader.
  char name[] = "/tmp/trireme-output-XXXXXX";
  output_ = ::mkstemp(name);
  ::unlink(name);
  std::vector<char*> argv{const_cast<char*>(command.c_str())};
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  pid_ = ::fork();
  if (pid_ == 0) {
    for (const std::string& variable : variables) ::putenv(const_cast<char*>(variable.c_str()));
    ::dup2(output_, STDOUT_FILENO);
    ::dup2(output_, STDERR_FILENO);
    ::execvp(argv[0], argv.data());
    ::_exit(127);
  }
}

std::string ProgramPath() { return TRIREME_PROGRAM; }

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  ::close(output_);
}

void Process::Kill(int signal) const { ::kill(pid_, signal); }

Outcome Process::Wait(std::chrono::seconds limit) {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  int status = 0;
  while (::waitpid(pid_, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() > deadline) {
      ADD_FAILURE() << "the program still runs after " << limit.count() << " s";
      ::kill(pid_, SIGKILL);
      ::waitpid(pid_, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  pid_ = -1;
  Outcome outcome;
  if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) outcome.signal = WTERMSIG(status);
  const off_t size = ::lseek(output_, 0, SEEK_END);
  outcome.output.resize(static_cast<size_t>(size));
  if (::pread(output_, outcome.output.data(), outcome.output.size(), 0) != size)
    ADD_FAILURE() << "cannot read the program's output";
  return outcome;
}

Outcome RunProgram(const std::vector<std::string>& words) { return Process(words).Wait(); }

}  // namespace trireme::testing
