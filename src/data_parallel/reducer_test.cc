#include "data_parallel/reducer.h"

#include <ATen/TensorOperators.h>
#include <gtest/gtest.h>

#include "comm/recording.h"
#include "testing/rank_world.h"

namespace trireme {
namespace {

ParamSpec Spec(const char* name, Shape shape, int unit, TpPlacement tp = {}) {
  ParamSpec spec;
  spec.name = name;
  spec.shape = std::move(shape);
  spec.unit = unit;
  spec.tp = tp;
  return spec;
}

std::vector<ParamSpec> TwoUnits() {
  return {Spec("embed", {5, 2}, 0), Spec("q", {4, 2}, 1), Spec("k", {2, 2}, 1), Spec("head", {3, 2}, 2)};
}

// Head first: 6 elements padded to 8; then q and k, 8 + 4 = 12 padded to 16; then the embedding, 10 padded to 16.
TEST(ParamStore, LaysUnitsOutInTheOrderOfBackward) {
  ParamStore store(ShardingTable(TwoUnits(), 1, 0), at::kDouble, 8);
  EXPECT_EQ(store.units(), (std::vector{2, 1, 0}));
  EXPECT_EQ(store.UnitRange(2), (ElementRange{0, 8}));
  EXPECT_EQ(store.RangeOf("q"), (ElementRange{8, 16}));
  EXPECT_EQ(store.RangeOf("k"), (ElementRange{16, 20}));
  EXPECT_EQ(store.UnitRange(0), (ElementRange{24, 40}));
  const Param fused = store.Get({"q", "k"});
  EXPECT_EQ(fused.value.sizes(), (std::vector<int64_t>{6, 2}));
  EXPECT_EQ(fused.TakeGradBeta(), 0.0);
  EXPECT_EQ(store.Get({"q", "k"}).TakeGradBeta(), 1.0);  // one flag for all who use it
  EXPECT_THROW(store.Get({"q"}), Error);                 // taken in another fusion
  EXPECT_THROW(store.Get({"head", "embed"}), Error);     // no neighbours
}

TEST(ParamStore, InitialValuesDoNotDependOnTheLayout) {
  const auto specs = [](int tp) {
    return std::vector{Spec("w", {7, 3}, 0, {0, tp, 8}), Spec("v", {2, 4}, 0, {1, tp, 0})};
  };
  ParamStore one(ShardingTable(specs(1), 1, 0), at::kDouble);
  one.Initialize(5);
  for (const int tp : {2, 4}) {
    for (int rank = 0; rank < tp; ++rank) {
      ParamStore part(ShardingTable(specs(tp), tp, rank), at::kDouble);
      part.Initialize(5);
      const Rectangle w = part.table().Find("w").rectangle, v = part.table().Find("v").rectangle;
      EXPECT_TRUE(part.Value("w").narrow(0, 0, w.size[0]).equal(one.Value("w").narrow(0, w.offset[0], w.size[0])));
      EXPECT_TRUE(part.Value("v").equal(one.Value("v").narrow(1, v.offset[1], v.size[1])));
      EXPECT_EQ(part.Value("w").narrow(0, w.size[0], part.Value("w").size(0) - w.size[0]).ne(0).sum().item<int64_t>(),
                0);
    }
  }
}

// Rank r's gradients are r + 1 everywhere: the sum over 3 ranks is 6. A bucket of 1 byte holds one unit.
TEST(Reducer, SumsEachBucketOnceAStep) {
  testing::RankWorld(3).Run([](testing::Rank& rank) {
    CommRecorder recorder;
    const auto dp = Record(rank.world.Split({{0, 1, 2}}, "dp"), recorder);
    const auto tp = rank.world.Split({{0}, {1}, {2}}, "tp");
    ParamStore store(ShardingTable(TwoUnits(), 1, 0), at::kDouble, 8);
    Reducer reducer(store, *dp, *tp, Bytes(1));
    EXPECT_EQ(reducer.buckets().size(), 3u);
    const Param head = store.Get({"head"}), embed = store.Get({"embed"}), qk = store.Get({"q", "k"});
    for (int step = 0; step < 2; ++step) {
      store.BeginStep();
      for (const Param& param : {head, embed}) {
        EXPECT_EQ(param.TakeGradBeta(), 0.0);
        param.grad.fill_(rank.rank() + 1);
      }
      qk.grad.fill_(99);  // of an earlier step: nobody writes it in this one
      for (const int unit : store.units()) reducer.UnitReady(unit);
      reducer.Finish();
      EXPECT_EQ(store.Grad("embed").eq(6).sum().item<int64_t>(), 10);
      EXPECT_EQ(store.Grad("head").eq(6).sum().item<int64_t>(), 6);
      EXPECT_EQ(store.Grad("q").ne(0).sum().item<int64_t>(), 0);
    }
    EXPECT_EQ(recorder.Total("dp").calls, 6);
  });
}

TEST(Reducer, AddsSharedKeyValueHeadsOverTheirReplicas) {
  testing::RankWorld(4).Run([](testing::Rank& rank) {
    const auto dp = rank.world.Split({{0}, {1}, {2}, {3}}, "dp");
    ParamStore store(ShardingTable({Spec("k", {2, 2}, 0, {0, 2, 0})}, 4, rank.rank()), at::kDouble);
    Reducer reducer(store, *dp, rank.world);
    const Param k = store.Get({"k"});
    k.TakeGradBeta();
    k.grad.fill_(rank.rank());
    reducer.UnitReady(0);
    reducer.Finish();
    // Ranks 0 and 1 share head 0: 0 + 1; ranks 2 and 3 share head 1: 2 + 3.
    EXPECT_EQ(store.Grad("k").eq(rank.rank() < 2 ? 1 : 5).sum().item<int64_t>(), 2);
  });
}

}  // namespace
}  // namespace trireme
