#pragma once
// What this process is told from outside, and how it may start itself again.

#include <atomic>
#include <string>
#include <vector>

#include "train/launch.h"

namespace trireme::apps {

Environment ReadEnvironment();
// This program and its arguments.
std::vector<std::string> OwnCommandLine();
// SIGINT and SIGTERM set the flag that is returned; a second one ends the program at once.
const std::atomic<bool>* CatchSignals();

}  // namespace trireme::apps
