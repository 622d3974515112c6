#pragma once
// The program as a child process: what it prints, how it ends, and how to end it.

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace trireme::testing {

struct Outcome {
  int exit_code = -1;  // -1: ended by a signal
  int signal = 0;
  std::string output;  // standard output and error, in the order they came
};

class Process {
 public:
  // Starts the program under test with these words.
  explicit Process(const std::vector<std::string>& words);
  // Starts `command`, looked up in PATH, with further words, and `variables` ("NAME=value") in its environment.
  Process(const std::string& command, const std::vector<std::string>& words,
          const std::vector<std::string>& variables = {});
  ~Process();  // kills it if it still runs
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  void Kill(int signal) const;
  // Waits; a child that outlasts `limit` is killed and fails the test.
  Outcome Wait(std::chrono::seconds limit = std::chrono::seconds(300));

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

Outcome RunProgram(const std::vector<std::string>& words);

std::string ProgramPath();  // of the program under test

}  // namespace trireme::testing
