#include "apps/process.h"

#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>

namespace trireme::apps {
namespace {

// A signal handler can reach nothing else: the one mutable global of the program.
std::atomic<bool> stop_requested{false};
static_assert(std::atomic<bool>::is_always_lock_free);
extern "C" void RequestStop(int) { stop_requested.store(true); }

}  // namespace

Environment ReadEnvironment() { return ParseEnvironment(environ); }

std::vector<std::string> OwnCommandLine() {
  std::vector<std::string> words;
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  for (std::string word; std::getline(in, word, '\0');) words.push_back(word);
  words.at(0) = std::filesystem::read_symlink("/proc/self/exe").string();
  return words;
}

const std::atomic<bool>* CatchSignals() {
  struct sigaction action {};
  action.sa_handler = RequestStop;
  action.sa_flags = SA_RESTART | SA_RESETHAND;
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
  return &stop_requested;
}

}  // namespace trireme::apps
