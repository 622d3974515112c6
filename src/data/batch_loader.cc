#include "data/batch_loader.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace trireme {

BatchLoader::BatchLoader(const std::string& prefix, int64_t seq, int64_t vocab, const std::string& loss_mask,
                         int64_t first_token, int64_t num_tokens)
    : file_(prefix), seq_(seq), vocab_(vocab), first_token_(first_token), num_tokens_(num_tokens) {
  TRIREME_CHECK(first_token >= 0 && num_tokens >= 0 && first_token + num_tokens <= file_.num_tokens(),
                "tokens {} + {} of {}", first_token, num_tokens, file_.num_tokens());
  if (loss_mask.empty()) return;
  mask_.emplace(loss_mask);
  const auto bytes = static_cast<int64_t>(mask_->bytes().size());
  if (bytes != file_.num_tokens()) {
    FailUser("data.loss_mask: {}: expected {} bytes, one a token of {}, got {}", loss_mask, file_.num_tokens(), prefix,
             bytes);
  }
}

void BatchLoader::Load(std::span<const int64_t> samples, const at::Tensor& tokens_BT,
                       const at::Tensor& labels_BT) const {
  std::vector<int64_t> sample(static_cast<size_t>(seq_) + 1);
  int64_t *tokens = tokens_BT.mutable_data_ptr<int64_t>(), *labels = labels_BT.mutable_data_ptr<int64_t>();
  for (const int64_t index : samples) {
    const int64_t begin = first_token_ + index * seq_;
    TRIREME_CHECK(index >= 0 && (index + 1) * seq_ + 1 <= num_tokens_, "sample {} of a split of {} tokens", index,
                  num_tokens_);
    file_.Read(begin, sample);
    for (int64_t t = 0; t <= seq_; ++t) {
      const int64_t id = sample[static_cast<size_t>(t)];
      if (id < 0 || id >= vocab_) {
        Fail("sample {} position {} (token {} of the file): id {} is outside model.vocab {}", index, t, begin + t, id,
             vocab_);
      }
    }
    std::copy_n(sample.begin(), seq_, tokens);
    std::copy_n(sample.begin() + 1, seq_, labels);
    if (mask_) {
      for (int64_t t = 0; t < seq_; ++t) {
        if (mask_->bytes()[static_cast<size_t>(begin + t + 1)] == std::byte{0}) labels[t] = kIgnoredLabel;
      }
    }
    tokens += seq_;
    labels += seq_;
  }
}

}  // namespace trireme
