#pragma once
// The thread back end: ranks are threads of one process and read each other's tensors in place. No copies beyond the
// sum itself; a collective whose members have all arrived is cut into chunks that any waiting member works off, so one
// busy rank never delays the others. Chunks sum in rank order: bits do not depend on timing.

#include <chrono>
#include <functional>
#include <memory>

#include "comm/communicator.h"

namespace trireme {

class ThreadWorld {
 public:
  ThreadWorld(int size, std::chrono::duration<double> timeout);
  ~ThreadWorld();
  // The world group as `rank` sees it. Call once for each rank; `describe` names ranks in errors ("dp1 tp0"; may be
  // empty).
  std::unique_ptr<Communicator> Join(int rank, std::function<std::string(int)> describe = {});

 private:
  struct State;
  std::shared_ptr<State> state_;
};

// Runs body(world) on one thread for each rank and joins them. A rank that throws aborts the world, so that the others
// leave their waits at once; then the first error is rethrown here (the cause, not its echoes).
void RunThreadRanks(int ranks, std::chrono::duration<double> timeout,
                    const std::function<void(Communicator& world)>& body,
                    std::function<std::string(int)> describe = {});

}  // namespace trireme
