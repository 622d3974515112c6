// The references' gradients against central differences of the references' forwards: loss = sum(weights * output).

#include "kernels/reference.h"

#include <cmath>

#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

// The derivative of f at x by central differences; the error is about h^2 + 1e-16 / h of the size of f: 1e-9.
at::Tensor Slope(const at::Tensor& x, const std::function<double(const at::Tensor&)>& f) {
  constexpr double kStep = 1e-5;
  const at::Tensor slope = at::empty(x.sizes(), at::kDouble), probe = x.clone();
  for (int64_t i = 0; i < x.numel(); ++i) {
    double* const at = probe.mutable_data_ptr<double>() + i;
    const double middle = *at;
    *at = middle + kStep;
    const double above = f(probe);
    *at = middle - kStep;
    slope.mutable_data_ptr<double>()[i] = (above - f(probe)) / (2 * kStep);
    *at = middle;
  }
  return slope;
}

void ExpectSlope(const at::Tensor& expected, const at::Tensor& got) {
  ASSERT_EQ(expected.sizes(), got.sizes());
  EXPECT_LE(expected.sub(got).norm().item<double>(), 1e-8 * expected.norm().item<double>());
}

double Weighted(const at::Tensor& weights, const at::Tensor& output) {
  return weights.mul(output).sum().item<double>();
}

TEST(Reference, RmsNormGradients) {
  const at::Tensor x = Random({3, 5}, "x"), w = Random({5}, "w"), dy = Random({3, 5}, "dy");
  const auto grads = reference::RmsNormBackward(dy, x, w, 0.1);
  ExpectSlope(Slope(x, [&](const at::Tensor& p) { return Weighted(dy, reference::RmsNorm(p, w, 0.1)); }), grads.dx_TD);
  ExpectSlope(Slope(w, [&](const at::Tensor& p) { return Weighted(dy, reference::RmsNorm(x, p, 0.1)); }),
              grads.dweight_D);
}

TEST(Reference, SwiGluGradient) {
  const at::Tensor gate_up = Random({3, 10}, "gate_up"), dy = Random({3, 5}, "dy");
  ExpectSlope(Slope(gate_up, [&](const at::Tensor& p) { return Weighted(dy, reference::SwiGlu(p)); }),
              reference::SwiGluBackward(dy, gate_up));
}

TEST(Reference, RopeGradientIsTheInverseRotation) {
  const at::Tensor x = Random({5, 12}, "x"), dy = Random({5, 12}, "dy");
  ExpectSlope(Slope(x, [&](const at::Tensor& p) { return Weighted(dy, reference::Rope(p, 2, 4, 5, 100, false)); }),
              reference::Rope(dy, 2, 4, 5, 100, true));
}

TEST(Reference, AttentionGradient) {
  const at::Tensor qkv = Random({2 * 5, (4 + 2 * 2) * 3}, "qkv"), dout = Random({2 * 5, 4 * 3}, "dout");
  ExpectSlope(
      Slope(qkv, [&](const at::Tensor& p) { return Weighted(dout, reference::CausalAttention(p, 5, 4, 2, 3).out); }),
      reference::CausalAttentionBackward(dout, qkv, 5, 4, 2, 3));
}

TEST(Reference, CrossEntropyGradient) {
  const at::Tensor logits = Random({4, 7}, "logits"), labels = Integers({0, -100, 5, 3});
  ExpectSlope(Slope(logits, [&](const at::Tensor& p) { return 0.5 * reference::CrossEntropy(p, 6, labels, 0.5).loss; }),
              reference::CrossEntropy(logits, 6, labels, 0.5).dlogits_TV);
}

// Equal scores: row i is the mean of values 0..i, here 1, 1.5, 2; the log of the sum of i + 1 ones is log(i + 1).
TEST(Reference, AttentionByHand) {
  const at::Tensor qkv = at::full({3, 3}, 0, at::kDouble);
  for (int64_t t = 0; t < 3; ++t) qkv[t][2].fill_(static_cast<double>(t + 1));
  const auto result = reference::CausalAttention(qkv, 3, 1, 1, 1);
  EXPECT_DOUBLE_EQ(result.out[0][0].item<double>(), 1);
  EXPECT_DOUBLE_EQ(result.out[1][0].item<double>(), 1.5);
  EXPECT_DOUBLE_EQ(result.out[2][0].item<double>(), 2);
  EXPECT_DOUBLE_EQ(result.log_sum_exp[0][0][2].item<double>(), std::log(3.0));
}

}  // namespace
}  // namespace trireme::kernels
