#include <array>
#include <cmath>

#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

constexpr double kTheta = 10000;

using RopeTest = KernelTest;

// Head width 4, position 1: pair 0 turns by 1 rad, pair 1 by 10000^(-1/2) = 0.01 rad.
TEST_P(RopeTest, TablesByHand) {
  const at::Tensor cos = Unwritten({2, 2}), sin = Unwritten({2, 2});
  RopeTables(2, 4, kTheta, cos, sin);
  EXPECT_EQ(cos[0][0].item<double>(), 1);
  EXPECT_EQ(sin[0][1].item<double>(), 0);
  EXPECT_NEAR(cos[1][0].item<double>(), 0.5403023058681398, 1e-7);    // cos 1
  EXPECT_NEAR(sin[1][1].item<double>(), 0.009999833334166664, 1e-9);  // sin 0.01
}

TEST_P(RopeTest, AgreesWithTheReferenceAndTurnsBack) {
  struct Case {
    int64_t batch, seq, heads, head_dim, row;  // row: width of a row, heads beyond `heads` included
  };
  for (const Case& c : {Case{1, 1, 1, 2, 2}, {2, 5, 3, 6, 24}, {3, 37, 4, 32, 192}}) {
    const at::Tensor x = Random({c.batch * c.seq, c.row}, "x"), got = Typed(x);
    const at::Tensor cos = Unwritten({c.seq, c.head_dim / 2}), sin = Unwritten({c.seq, c.head_dim / 2});
    RopeTables(c.seq, c.head_dim, kTheta, cos, sin);
    Rope(got, c.heads, c.head_dim, c.seq, cos, sin, false);
    EXPECT_TRUE(Close(reference::Rope(x, c.heads, c.head_dim, c.seq, kTheta, false), got)) << c.seq;
    const int64_t turned = c.heads * c.head_dim;
    EXPECT_TRUE(at::equal(got.narrow(1, turned, c.row - turned), Typed(x).narrow(1, turned, c.row - turned)));
    Rope(got, c.heads, c.head_dim, c.seq, cos, sin, true);
    EXPECT_TRUE(Close(x, got)) << c.seq;  // a rotation's inverse is its transpose, which is the backward
  }
}

TEST_P(RopeTest, TakesColumnsOfAWiderBuffer) {
  const at::Tensor wide = Random({6, 20}, "x"), got = Typed(wide), expected = wide.clone();
  expected.narrow(1, 4, 8).copy_(reference::Rope(wide.narrow(1, 4, 8).contiguous(), 2, 4, 3, kTheta, false));
  const at::Tensor cos = Unwritten({3, 2}), sin = Unwritten({3, 2});
  RopeTables(3, 4, kTheta, cos, sin);
  Rope(got.narrow(1, 4, 8), 2, 4, 3, cos, sin, false);
  EXPECT_TRUE(Close(expected, got));
}

TEST_P(RopeTest, SameBitsWhateverTheThreads) {
  const at::Tensor x = Typed(Random({111, 64}, "x")), cos = Unwritten({37, 8}), sin = Unwritten({37, 8});
  RopeTables(37, 16, kTheta, cos, sin);
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor y = x.clone();
    Rope(y, 4, 16, 37, cos, sin, false);
    return std::vector<at::Tensor>{y};
  });
}

TRIREME_FOR_BOTH_TYPES(RopeTest);

}  // namespace
}  // namespace trireme::kernels
