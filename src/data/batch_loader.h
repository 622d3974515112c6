#pragma once
// Samples of a token file as tensors of inputs and labels.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "base/file.h"
#include "data/token_file.h"

namespace trireme {

inline constexpr int64_t kIgnoredLabel = -100;

class BatchLoader {
 public:
  // Samples lie in tokens first_token .. first_token + num_tokens - 1. loss_mask: path of a file with one byte a token
  // of the whole file, empty for none. UserError when its size is another.
  BatchLoader(const std::string& prefix, int64_t seq, int64_t vocab, const std::string& loss_mask, int64_t first_token,
              int64_t num_tokens);

  // tokens and labels: int64 [samples.size(), seq], overwritten. Labels are the next tokens; a label whose own mask
  // byte is 0 becomes -100. Error naming sample, position, value and vocabulary for an id outside 0 .. vocab - 1.
  void Load(std::span<const int64_t> samples, const at::Tensor& tokens_BT, const at::Tensor& labels_BT) const;

 private:
  TokenFile file_;
  std::optional<MappedFile> mask_;
  int64_t seq_, vocab_, first_token_, num_tokens_;
};

}  // namespace trireme
