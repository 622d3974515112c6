#include "testing/rank_world.h"

#include "comm/thread_world.h"

namespace trireme::testing {

void RankWorld::Run(const std::function<void(Rank&)>& body) const {
  RunThreadRanks(size_, timeout_, [&](Communicator& world) {
    Rank rank{world};
    body(rank);
  });
}

}  // namespace trireme::testing
