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

// Looks at every input of the run and plans the split; writes nothing. UserError when a file is missing or does not
// fit, or the training split is shorter than one global batch.
TrainingData PlanData(const Config& config, const std::filesystem::path& run_dir);

// Packs data.text, or makes synthetic tokens, at data.prefix; nothing to do for data.tokens.
void WriteData(const Config& config, const TrainingData& data);

}  // namespace trireme
