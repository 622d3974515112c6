#include "comm/thread_world.h"

#include <ATen/ops/full.h>

#include "comm/mesh_comms.h"
#include "testing/comm_conformance.h"
#include "testing/rank_world.h"

namespace trireme::testing {

INSTANTIATE_TEST_SUITE_P(Threads, CommConformance,
                         ::testing::Values(BackEnd{"threads",
                                                   [](int ranks, std::chrono::duration<double> timeout,
                                                      const std::function<void(Communicator&)>& body) {
                                                     RunThreadRanks(ranks, timeout, body);
                                                   }}),
                         BackEndName);

namespace {

TEST(Recording, CountsBytesOfTheRing) {
  RankWorld(4).Run([](Rank& rank) {
    CommRecorder recorder;
    const MeshComms comms(rank.world, Mesh(ParallelOptions{.dp = 2, .tp = 2}), recorder);
    at::Tensor t = at::full({100}, 1.f);
    comms.Get(Axis::kTp).AllReduce(t)->Wait();
    comms.grad().AllReduce(t)->Wait();
    EXPECT_EQ(t[0].item<float>(), 4.f);  // 2 tp x 2 dp
    EXPECT_EQ(recorder.counts().at("tp").at("all_reduce").calls, 1);
    EXPECT_EQ(recorder.Total("tp").bytes, Bytes(400));  // 2 (2-1)/2 of 400 bytes
    EXPECT_EQ(recorder.Total("dp").bytes, Bytes(400));
  });
}

}  // namespace
}  // namespace trireme::testing
