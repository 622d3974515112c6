#include "base/philox.h"

#include <gtest/gtest.h>

namespace trireme {
namespace {

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(Philox, MatchesThePublishedVectors) {
  EXPECT_EQ(Philox(0, uint64_t{0}).At(0), (Philox::Block{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox(0xffffffffffffffff, uint64_t{0xffffffffffffffff}).At(0xffffffffffffffff),
            (Philox::Block{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(Philox(0x299f31d0a4093822, uint64_t{0x0370734413198a2e}).At(0x85a308d3243f6a88),
            (Philox::Block{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, NormalHasMeanZeroAndVarianceOne) {
  const Philox random(1, "some.parameter");
  double sum = 0, squares = 0;
  constexpr int kCount = 200000;
  for (uint64_t i = 0; i < kCount; ++i) {
    const double x = random.Normal(i);
    sum += x;
    squares += x * x;
  }
  // Five standard errors: 5 / sqrt(n) and 5 sqrt(2 / n).
  EXPECT_NEAR(sum / kCount, 0, 0.0112);
  EXPECT_NEAR(squares / kCount, 1, 0.0159);
}

TEST(Philox, StreamsAndSeedsDiffer) {
  EXPECT_NE(Philox(1, "a").Bits64(0), Philox(1, "b").Bits64(0));
  EXPECT_NE(Philox(1, "a").Bits64(0), Philox(2, "a").Bits64(0));
  EXPECT_EQ(Philox(1, "a").Bits64(5), Philox(1, "a").Bits64(5));
}

}  // namespace
}  // namespace trireme
