#include "kernels/arena.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace trireme {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

TEST(Arena, TensorsAreAlignedApartAndWritable) {
  Arena arena;
  const at::Tensor a = arena.Allocate({3, 5}, at::kFloat), b = arena.Allocate({7}, at::kDouble),
                   c = arena.Allocate({1}, at::kLong);
  for (const at::Tensor& t : {a, b, c}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data_ptr()) % 64, 0u);
    EXPECT_TRUE(t.is_contiguous());
  }
  a.fill_(1);
  b.fill_(2);
  c.fill_(3);
  EXPECT_EQ(a.sum().item<float>(), 15);
  EXPECT_EQ(b.sum().item<double>(), 14);
  EXPECT_EQ(c.item<int64_t>(), 3);
}

TEST(Arena, ReleaseGivesTheSameMemoryAgain) {
  Arena arena(Bytes{kMiB});
  arena.Allocate({10}, at::kFloat);
  const Arena::Mark mark = arena.Top();
  const Bytes used = arena.used();
  void* first = arena.Allocate({100}, at::kFloat).data_ptr();
  arena.Release(mark);
  EXPECT_EQ(arena.used().value, used.value);
  EXPECT_EQ(arena.Allocate({50}, at::kDouble).data_ptr(), first);
  arena.Reset();
  EXPECT_EQ(arena.used().value, 0);
  EXPECT_EQ(arena.growths(), 0);
}

TEST(Arena, ScopeReleasesWhatWasAllocatedInIt) {
  Arena arena;
  {
    const ArenaScope outer(arena);
    arena.Allocate({1000}, at::kFloat);
    const Bytes before = arena.used();
    {
      const ArenaScope inner(arena);
      arena.Allocate({kMiB}, at::kFloat);  // 4 MiB: needs a second block
    }
    EXPECT_EQ(arena.used().value, before.value);
  }
  EXPECT_EQ(arena.used().value, 0);
  EXPECT_GE(arena.peak().value, 4 * kMiB + 4000);
}

// Blocks: 1 MiB at least, then twice the last, then as large as the request.
TEST(Arena, GrowsByBlocksAndKeepsThem) {
  Arena arena;
  EXPECT_EQ(arena.capacity().value, 0);
  arena.Allocate({1}, at::kFloat);
  EXPECT_EQ(arena.capacity().value, kMiB);
  arena.Allocate({kMiB}, at::kByte);  // no room beside the first
  EXPECT_EQ(arena.capacity().value, 3 * kMiB);
  arena.Allocate({16 * kMiB}, at::kByte);
  EXPECT_GE(arena.capacity().value, 19 * kMiB);
  EXPECT_EQ(arena.growths(), 3);

  const Bytes capacity = arena.capacity();
  for (int step = 0; step < 3; ++step) {  // warm steps take no new memory
    arena.Reset();
    arena.Allocate({1}, at::kFloat);
    arena.Allocate({kMiB}, at::kByte);
    arena.Allocate({16 * kMiB}, at::kByte);
  }
  EXPECT_EQ(arena.capacity().value, capacity.value);
  EXPECT_EQ(arena.growths(), 3);
}

TEST(Arena, PeakOutlivesTheRelease) {
  Arena arena(Bytes{kMiB});
  arena.Allocate({1024}, at::kFloat);
  arena.Reset();
  arena.Allocate({16}, at::kFloat);
  EXPECT_GE(arena.peak().value, 4096);
  EXPECT_LT(arena.used().value, 4096);
}

TEST(Arena, EmptyTensorsAreAllowed) {
  Arena arena;
  const at::Tensor empty = arena.Allocate({0, 5}, at::kFloat);
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_EQ(empty.sizes(), at::IntArrayRef({0, 5}));
}

#if defined(__SANITIZE_ADDRESS__)
TEST(ArenaDeathTest, UseAfterReleaseAndPastTheEndAreCaught) {
  Arena arena;
  const Arena::Mark mark = arena.Top();
  volatile float* data = arena.Allocate({16}, at::kFloat).mutable_data_ptr<float>();
  arena.Allocate({16}, at::kFloat);
  EXPECT_DEATH(data[16] = 1, "use-after-poison");
  arena.Release(mark);
  EXPECT_DEATH(data[0] = 1, "use-after-poison");
}
#endif

}  // namespace
}  // namespace trireme
