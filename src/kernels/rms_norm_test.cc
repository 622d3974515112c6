#include <ATen/ops/ones.h>

#include <array>

#include "base/error.h"
#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

constexpr double kEps = 1e-5;
constexpr std::array<std::array<int64_t, 2>, 4> kSizes = {{{1, 1}, {3, 7}, {65, 33}, {130, 512}}};

using RmsNormTest = KernelTest;

// x = (3, 4), eps 0: mean square 12.5, so y = x / sqrt(12.5) * weight.
TEST_P(RmsNormTest, ByHand) {
  const at::Tensor x = at::full({1, 2}, 3, GetParam()), y = Unwritten({1, 2}), inverse = Unwritten({1});
  x[0][1].fill_(4);
  RmsNormForward(x, at::full({2}, 10, GetParam()), 0, y, inverse);
  EXPECT_NEAR(y[0][0].item<double>(), 30 / std::sqrt(12.5), 1e-5);
  EXPECT_NEAR(y[0][1].item<double>(), 40 / std::sqrt(12.5), 1e-5);
  EXPECT_NEAR(inverse.item<double>(), 1 / std::sqrt(12.5), 1e-7);
}

TEST_P(RmsNormTest, AgreesWithTheReference) {
  for (const auto& [rows, width] : kSizes) {
    const at::Tensor x = Random({rows, width}, "x", 3), weight = Random({width}, "w"), dy = Random({rows, width}, "dy");
    const at::Tensor y = Unwritten({rows, width}), inverse = Unwritten({rows});
    RmsNormForward(Typed(x), Typed(weight), kEps, y, inverse);
    EXPECT_TRUE(Close(reference::RmsNorm(x, weight, kEps), y)) << rows << " x " << width;

    const reference::RmsNormGrads expected = reference::RmsNormBackward(dy, x, weight, kEps);
    // dx has the residual's gradient already; a weight gradient is overwritten (beta 0), then added to (beta 1).
    const at::Tensor residual = Random({rows, width}, "residual"), dx = Typed(residual);
    RmsNormBackwardInput(Typed(dy), Typed(x), Typed(weight), inverse, dx);
    EXPECT_TRUE(Close(expected.dx_TD.add(residual), dx)) << rows << " x " << width;
    const at::Tensor dweight = Unwritten({width});
    RmsNormBackwardWeight(Typed(dy), Typed(x), inverse, 0, dweight);
    EXPECT_TRUE(Close(expected.dweight_D, dweight)) << rows << " x " << width;
    RmsNormBackwardWeight(Typed(dy), Typed(x), inverse, 1, dweight);
    EXPECT_TRUE(Close(expected.dweight_D.mul(2), dweight)) << rows << " x " << width;
  }
}

TEST_P(RmsNormTest, SameBitsWhateverTheThreads) {
  const at::Tensor x = Typed(Random({301, 96}, "x")), weight = Typed(Random({96}, "w")),
                   dy = Typed(Random({301, 96}, "dy"));
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor y = Unwritten({301, 96}), inverse = Unwritten({301}), dx = Typed(x), dweight = Unwritten({96});
    RmsNormForward(x, weight, kEps, y, inverse);
    RmsNormBackwardInput(dy, x, weight, inverse, dx);
    RmsNormBackwardWeight(dy, x, inverse, 0, dweight);
    return std::vector<at::Tensor>{y, inverse, dx, dweight};
  });
}

// A batch may be empty on a rank; beta 0 still has to write the weight gradient.
TEST_P(RmsNormTest, NoRows) {
  const at::Tensor dweight = Unwritten({4});
  RmsNormBackwardWeight(Unwritten({0, 4}), Unwritten({0, 4}), Unwritten({0}), 0, dweight);
  EXPECT_EQ(dweight.abs().sum().item<double>(), 0);
}

TEST(RmsNorm, OtherTypesAreRefusedByName) {
  const at::Tensor half = at::ones({2, 2}, at::kHalf);
  try {
    RmsNormForward(half, half[0], kEps, half, half[0]);
    FAIL() << "fp16 was taken";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "RmsNormForward: expected fp32 or fp64, got Half");
  }
}

TRIREME_FOR_BOTH_TYPES(RmsNormTest);

}  // namespace
}  // namespace trireme::kernels
