#pragma once
// The token files of a run, prepared once before any rank starts.

#include <filesystem>
#include <string>

#include "config/config.h"

namespace trireme {

// Where a run reads its tokens, and how they are split. Tokens [0, train_tokens) train, the rest validates.
struct TrainingData {
  std::string prefix;
  std::string loss_mask;  // empty: every token counts
  int64_t train_tokens = 0;
  int64_t validation_tokens = 0;
};

// Packs data.text into run_dir/tokens.{bin,idx} (or makes synthetic tokens there), or checks data.tokens. UserError
// when the training split is shorter than one sequence.
TrainingData PrepareData(const Config& config, const std::filesystem::path& run_dir);

}  // namespace trireme
