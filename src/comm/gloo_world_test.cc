#include "comm/gloo_world.h"

#include <mutex>
#include <thread>

#include "testing/comm_conformance.h"

namespace trireme::testing {
namespace {

// Ranks as threads that talk over TCP on loopback.
void RunGloo(int ranks, std::chrono::duration<double> timeout, const std::function<void(Communicator&)>& body) {
  const auto rendezvous = Rendezvous::Local();
  std::mutex mutex;
  std::exception_ptr first;
  std::vector<std::unique_ptr<Communicator>> worlds(static_cast<size_t>(ranks));  // leave together, after the last
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      auto& world = worlds[static_cast<size_t>(rank)];
      try {
        world = JoinGloo(rendezvous, {.rank = rank, .size = ranks, .timeout = timeout});
        body(*world);
      } catch (const std::exception& e) {
        {
          const std::lock_guard lock(mutex);
          if (!first) first = std::current_exception();
        }
        if (world) world->Abort(e.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  if (first) std::rethrow_exception(first);
}

}  // namespace

INSTANTIATE_TEST_SUITE_P(Gloo, CommConformance, ::testing::Values(BackEnd{"gloo", RunGloo}), BackEndName);

}  // namespace trireme::testing
