#include "train/launch.h"

#include <gmock/gmock.h>

namespace trireme {
namespace {

using Kind = Launch::Kind;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

const Environment kTorchrun{{"RANK", "3"},        {"WORLD_SIZE", "4"},     {"LOCAL_RANK", "1"},
                            {"MASTER_ADDR", "h"}, {"MASTER_PORT", "1234"}, {"LOCAL_WORLD_SIZE", "2"}};
const Environment kMpirun{
    {"OMPI_COMM_WORLD_RANK", "2"}, {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}};
const Environment kSrun{{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}};

Environment With(Environment a, const Environment& b) {
  a.insert(b.begin(), b.end());
  return a;
}

TEST(DetectLaunch, WithoutALauncherRanksAreThreads) {
  EXPECT_EQ(DetectLaunch("auto", {}).kind, Kind::kThreads);
  EXPECT_EQ(DetectLaunch("thread", kTorchrun).kind, Kind::kThreads);
  EXPECT_EQ(DetectLaunch("gloo", {}).kind, Kind::kStartGloo);
  EXPECT_EQ(DetectLaunch("mpi", {}).kind, Kind::kStartMpi);
}

TEST(DetectLaunch, TorchrunsVariables) {
  const Launch launch = DetectLaunch("auto", kTorchrun);
  EXPECT_EQ(launch.kind, Kind::kGloo);
  EXPECT_EQ(launch.rank, 3);
  EXPECT_EQ(launch.world, 4);
  EXPECT_EQ(launch.local_rank, 1);
  EXPECT_EQ(launch.local_world, 2);
  EXPECT_EQ(launch.host + ":" + std::to_string(launch.port), "h:1234");
  EXPECT_FALSE(launch.serve);
  // Rank 0 answers at the port, unless torchrun's agent does already.
  const Environment zero{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
  EXPECT_TRUE(DetectLaunch("auto", zero).serve);
  EXPECT_FALSE(DetectLaunch("auto", With(zero, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}})).serve);
}

TEST(DetectLaunch, MpirunAndSrun) {
  const Launch mpirun = DetectLaunch("auto", kMpirun);
  EXPECT_EQ(mpirun.kind, Kind::kMpi);
  EXPECT_EQ(mpirun.rank, 2);
  EXPECT_EQ(mpirun.world, 4);
  const Launch srun = DetectLaunch("auto", kSrun);
  EXPECT_EQ(srun.kind, Kind::kMpi);
  EXPECT_EQ(srun.rank, 5);
  EXPECT_EQ(srun.local_rank, 1);
  // One task of an allocation is where threads are wanted.
  EXPECT_EQ(DetectLaunch("auto", {{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}).kind, Kind::kThreads);
  EXPECT_EQ(DetectLaunch("gloo", With(kSrun, {{"MASTER_ADDR", "h"}})).kind, Kind::kGloo);
}

TEST(DetectLaunch, WhatMakesNoSenseIsNamed) {
  EXPECT_THAT(
      [] {
        DetectLaunch("auto", {{"RANK", "4"}, {"WORLD_SIZE", "4"}});
      },
      ThrowsMessage<UserError>(HasSubstr("RANK: 4 is not below WORLD_SIZE = 4")));
  EXPECT_THAT(
      [] {
        DetectLaunch("auto", {{"RANK", "one"}, {"WORLD_SIZE", "4"}});
      },
      ThrowsMessage<UserError>(HasSubstr("RANK: 'one'")));
  EXPECT_THAT(
      [] {
        DetectLaunch("auto", With(kMpirun, {{"RANK", "0"}, {"WORLD_SIZE", "4"}}));
      },
      ThrowsMessage<UserError>(HasSubstr("RANK: 0 contradicts mpirun, which says 2")));
  EXPECT_THAT([] { DetectLaunch("gloo", kSrun); }, ThrowsMessage<UserError>(HasSubstr("MASTER_ADDR")));
  EXPECT_THAT([] { DetectLaunch("nccl", {}); }, ThrowsMessage<UserError>(HasSubstr("--backend nccl")));
}

}  // namespace
}  // namespace trireme
