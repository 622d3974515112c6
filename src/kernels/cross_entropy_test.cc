#include <ATen/ops/maximum.h>

#include <array>
#include <cmath>

#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

using CrossEntropyTest = KernelTest;

// The three steps over shards of the vocabulary, with the collectives between them done by hand. The first `valid`
// columns of `logits` are real; all shards have `width` columns. Returns the loss and the gradient, joined again.
reference::CrossEntropyResult InShards(const at::Tensor& logits, int64_t valid, int64_t width, const at::Tensor& labels,
                                       double scale) {
  const int64_t rows = logits.size(0), shards = logits.size(1) / width;
  const auto vector = [&] { return Unwritten({rows}, logits.scalar_type()); };
  const auto real = [&](int64_t s) { return std::clamp<int64_t>(valid - s * width, 0, width); };
  std::vector<at::Tensor> parts;
  at::Tensor max, sum, target;
  for (int64_t s = 0; s < shards; ++s) {
    parts.push_back(logits.narrow(1, s * width, width).clone(at::MemoryFormat::Contiguous));
    const at::Tensor mine = vector();
    CrossEntropyMax(parts.back(), real(s), mine);
    max = s == 0 ? mine : at::maximum(max, mine);
  }
  for (int64_t s = 0; s < shards; ++s) {
    const at::Tensor my_sum = vector(), my_target = vector();
    CrossEntropyExp(parts[static_cast<size_t>(s)], real(s), s * width, labels, max, my_sum, my_target);
    sum = s == 0 ? my_sum : sum.add(my_sum);
    target = s == 0 ? my_target : target.add(my_target);
  }
  reference::CrossEntropyResult result{0, logits.clone()};
  for (int64_t s = 0; s < shards; ++s) {
    const at::Tensor& part = parts[static_cast<size_t>(s)];
    const double loss = CrossEntropyGrad(part, real(s), s * width, labels, sum, target, scale);
    if (s == 0) result.loss = loss;
    EXPECT_EQ(loss, result.loss) << "every shard has the same loss";
    result.dlogits_TV.narrow(1, s * width, width).copy_(part);
  }
  return result;
}

// Logits (0, ln 3) and label 1: probabilities 1/4 and 3/4, loss ln(4/3), gradient (1/4, -1/4) times the scale.
TEST_P(CrossEntropyTest, ByHand) {
  const at::Tensor logits = at::full({1, 2}, 0, GetParam());
  logits[0][1].fill_(std::log(3.0));
  const auto result = InShards(logits, 2, 2, Integers({1}), 10);
  EXPECT_NEAR(result.loss, std::log(4.0 / 3), 1e-7);
  EXPECT_NEAR(result.dlogits_TV[0][0].item<double>(), 2.5, 1e-6);
  EXPECT_NEAR(result.dlogits_TV[0][1].item<double>(), -2.5, 1e-6);
}

// Labels: first and last of the vocabulary, ignored rows (-100), and others in every shard. Vocabulary 37 over 1, 2
// and 4 shards of 40, 20 and 12 columns: 3 padding columns; then 3; then 11, the last shard holding one real column.
TEST_P(CrossEntropyTest, AnyShardsAgreeWithTheReference) {
  constexpr int64_t kVocab = 37;
  const at::Tensor labels = Integers({0, 36, -100, 11, 12, 19, 20, -100, 23, 24, 35, 5, 7});
  for (const auto& [shards, width] : {std::array<int64_t, 2>{1, 40}, {2, 20}, {4, 12}, {2, 37}}) {
    const at::Tensor logits = Random({labels.numel(), shards * width}, "logits", 5);
    logits.narrow(1, kVocab, shards * width - kVocab).fill_(1e30);  // padding must not be looked at
    const auto expected = reference::CrossEntropy(logits, kVocab, labels, 0.125);
    const auto got = InShards(Typed(logits), kVocab, width, labels, 0.125);
    const double tolerance = GetParam() == at::kDouble ? 1e-12 : 1e-5;
    EXPECT_NEAR(got.loss, expected.loss, tolerance * expected.loss) << shards << " shards";
    EXPECT_TRUE(Close(expected.dlogits_TV, got.dlogits_TV)) << shards << " shards";
    EXPECT_EQ(got.dlogits_TV[2].abs().sum().item<double>(), 0) << "an ignored row has no gradient";
    EXPECT_EQ(got.dlogits_TV.narrow(1, kVocab, shards * width - kVocab).abs().sum().item<double>(), 0) << "padding";
  }
}

// exp(1000) is beyond fp64: only differences to the maximum are taken. Loss 2000 for the hopeless label.
TEST_P(CrossEntropyTest, HugeLogits) {
  const at::Tensor logits = at::full({2, 2}, 1000, GetParam());
  logits.select(1, 1).fill_(-1000);
  EXPECT_EQ(InShards(logits, 2, 2, Integers({0, 1}), 1).loss, 2000);
}

TEST_P(CrossEntropyTest, SameBitsWhateverTheThreads) {
  const at::Tensor logits = Typed(Random({65, 300}, "logits"));
  std::vector<int64_t> labels;
  for (int64_t t = 0; t < 65; ++t) labels.push_back(t * 4);
  ExpectSameOnOneAndTwoThreads([&] {
    const auto result = InShards(logits, 300, 300, Integers(labels), 1);
    return std::vector<at::Tensor>{result.dlogits_TV, at::full({1}, result.loss, at::kDouble)};
  });
}

TRIREME_FOR_BOTH_TYPES(CrossEntropyTest);

}  // namespace
}  // namespace trireme::kernels
