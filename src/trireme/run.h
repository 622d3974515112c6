#pragma once
// Starts the ranks of a program of one's own.

#include <chrono>
#include <functional>

#include "comm/communicator.h"

namespace trireme {

struct RunOptions {
  int ranks = 1;  // as threads, when no launcher started this process
  std::chrono::duration<double> timeout{600};
};

// Runs body(world) on every rank: under mpirun, srun or torchrun this process is one of them; else `ranks` threads of
// it are. Prints what went wrong to standard error, with the rank in front. Returns an exit code: 0, 1 when a rank
// failed, 2 when the launcher's environment makes no sense. Call it once, from main.
int RunDistributed(const RunOptions& options, const std::function<void(Communicator& world)>& body);

}  // namespace trireme
