#pragma once
// Ranks as threads inside one test: RankWorld(4).Run([](Rank& rank) { ... }). A rank that throws releases the others
// and its error is rethrown from Run.

#include <chrono>
#include <functional>

#include "comm/communicator.h"

namespace trireme::testing {

struct Rank {
  Communicator& world;
  int rank() const { return world.rank(); }
  int size() const { return world.size(); }
};

class RankWorld {
 public:
  explicit RankWorld(int size, std::chrono::duration<double> timeout = std::chrono::seconds(20))
      : size_(size), timeout_(timeout) {}
  void Run(const std::function<void(Rank&)>& body) const;

 private:
  int size_;
  std::chrono::duration<double> timeout_;
};

}  // namespace trireme::testing
