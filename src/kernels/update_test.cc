#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>

#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

using UpdateTest = KernelTest;

// Weight decay and clipping on, beta2 so close to 1 that 1 - beta2 must not be taken in fp32 (0.999 there is off by
// 4.7e-5 of 1 - 0.999). Elements outside [3, 3 + n) stay as they are.
TEST_P(UpdateTest, AdamWAgreesWithTheReferenceForThreeSteps) {
  constexpr int64_t kSize = 5003, kBegin = 3, kCount = 4990;
  const at::Tensor value = Random({kSize}, "value", 1e-3), first = at::zeros({kSize}, at::kDouble),
                   second = at::zeros({kSize}, at::kDouble);
  const at::Tensor got = Typed(value), got_first = Typed(first), got_second = Typed(second);
  const at::Tensor before = got.clone();
  const auto middle = [](const at::Tensor& t) { return t.narrow(0, kBegin, kCount); };
  for (int64_t step = 1; step <= 3; ++step) {
    const AdamWStep hyper{3e-2, 0.9, 0.999, 1e-8, 0.1, 0.5, step};
    const at::Tensor grad = Random({kSize}, "grad" + std::to_string(step));
    reference::AdamW(hyper, middle(value), middle(grad), middle(first), middle(second));
    AdamW(hyper, kBegin, kCount, got, Typed(grad), got_first, got_second);
    EXPECT_TRUE(Close(middle(value), middle(got))) << "step " << step;
    EXPECT_TRUE(Close(middle(first), middle(got_first))) << "step " << step;
    EXPECT_TRUE(Close(middle(second), middle(got_second))) << "step " << step;
  }
  EXPECT_TRUE(at::equal(got.narrow(0, 0, kBegin), before.narrow(0, 0, kBegin)));
  EXPECT_TRUE(at::equal(got.narrow(0, kBegin + kCount, 10), before.narrow(0, kBegin + kCount, 10)));
}

// value 4, gradient 6 halved, lr 0.5, decay 0.25: 4 - 0.5 * (3 + 1) = 2.
TEST_P(UpdateTest, SgdByHand) {
  const at::Tensor value = at::full({3}, 4, GetParam());
  Sgd(0.5, 0.25, 0.5, 1, 1, value, at::full({3}, 6, GetParam()));
  EXPECT_EQ(value[0].item<double>(), 4);
  EXPECT_EQ(value[1].item<double>(), 2);
  EXPECT_EQ(value[2].item<double>(), 4);
}

// 1^2 + 2^2 + ... + n^2 = n (n + 1) (2n + 1) / 6; from 3 to 100: 338350 - 1 - 4 = 338345.
TEST_P(UpdateTest, SumOfSquaresByHand) {
  const at::Tensor x = at::full({100}, 0, GetParam());
  for (int64_t i = 0; i < 100; ++i) x[i].fill_(static_cast<double>(i + 1));
  EXPECT_EQ(SumOfSquares(x, 2, 98), 338345);
  EXPECT_EQ(SumOfSquares(x, 5, 0), 0);
}

// (1e20)^2 = 1e40 is beyond fp32 (3.4e38): 10000 of them are 1e44. 1e20 in fp32 is off by 2e-8 of itself at most.
TEST_P(UpdateTest, SumOfSquaresDoesNotOverflow) {
  EXPECT_NEAR(SumOfSquares(at::full({10000}, 1e20, GetParam()), 0, 10000), 1e44, 1e37);
}

TEST_P(UpdateTest, SameBitsWhateverTheThreads) {
  const at::Tensor value = Typed(Random({20001}, "value")), grad = Typed(Random({20001}, "grad"));
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor adam = value.clone(), first = at::zeros_like(value), second = at::zeros_like(value),
                     sgd = value.clone();
    AdamW({1e-2, 0.9, 0.95, 1e-8, 0.1, 1, 1}, 1, 19999, adam, grad, first, second);
    Sgd(1e-2, 0.1, 1, 1, 19999, sgd, grad);
    return std::vector<at::Tensor>{adam, first, second, sgd, at::full({1}, SumOfSquares(grad, 1, 19999), at::kDouble)};
  });
}

TRIREME_FOR_BOTH_TYPES(UpdateTest);

}  // namespace
}  // namespace trireme::kernels
