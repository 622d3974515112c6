#include "train/training_data.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "base/philox.h"
#include "data/pack.h"
#include "data/sampler.h"
#include "data/token_file.h"

namespace trireme {
namespace {

// Enough for sixteen steps: what is timed does not depend on whether samples come back.
int64_t NumSyntheticTokens(const Config& config) { return 16 * config.batch.global * config.model.seq + 1; }

void WriteSynthetic(const Config& config, const std::string& prefix) {
  const Philox random(config.seed, "synthetic tokens");
  std::vector<int32_t> tokens(static_cast<size_t>(NumSyntheticTokens(config)));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(random.Bits64(i) % static_cast<uint64_t>(config.model.vocab));
  }
  TokenFileWriter writer(prefix, config.model.vocab);
  writer.Append(tokens);
  writer.EndDocument();
  writer.Finish();
}

int64_t FileSize(const char* field, const std::string& path) {
  if (!std::filesystem::is_regular_file(path)) FailUser("{}: {}: no such file; give a file that exists", field, path);
  return static_cast<int64_t>(std::filesystem::file_size(path));
}

int64_t CountTokens(const Config& config) {
  if (config.data.synthetic) return NumSyntheticTokens(config);
  if (!config.data.tokens.empty()) return TokenFile(config.data.tokens).num_tokens();
  int64_t tokens = 0;
  for (const std::string& path : config.data.text) tokens += FileSize("data.text", path);  // a byte is a token
  return tokens;
}

}  // namespace

TrainingData PlanData(const Config& config, const std::filesystem::path& run_dir) {
  TrainingData data;
  data.loss_mask = config.data.loss_mask;
  data.prefix = config.data.tokens.empty() ? (run_dir / "tokens").string() : config.data.tokens;
  const int64_t tokens = CountTokens(config);
  if (!data.loss_mask.empty() && FileSize("data.loss_mask", data.loss_mask) != tokens) {
    FailUser("data.loss_mask: {}: expected {} bytes, one a token, got {}", data.loss_mask, tokens,
             FileSize("data.loss_mask", data.loss_mask));
  }
  data.validation_tokens = static_cast<int64_t>(static_cast<double>(tokens) * config.data.validation);
  data.train_tokens = tokens - data.validation_tokens;
  const int64_t samples = NumSamples(data.train_tokens, config.model.seq);
  if (samples < config.batch.global) {
    FailUser(
        "batch.global: {} sequences of model.seq {} need {} tokens, but the training split of {} has {} ({} "
        "sequences); "
        "take more text, or lower batch.global or model.seq",
        config.batch.global, config.model.seq, config.batch.global * config.model.seq + 1, data.prefix,
        data.train_tokens, samples);
  }
  if (config.train.eval_every > 0 && NumSamples(data.validation_tokens, config.model.seq) == 0) {
    FailUser(
        "train.eval_every: {}, but the validation split has {} tokens, less than one sequence of {} + 1; raise "
        "data.validation, or set train.eval_every: 0",
        config.train.eval_every, data.validation_tokens, config.model.seq);
  }
  return data;
}

void WriteData(const Config& config, const TrainingData& data) {
  if (config.data.synthetic) WriteSynthetic(config, data.prefix);
  if (!config.data.text.empty()) PackText({config.data.text.begin(), config.data.text.end()}, data.prefix);
}

}  // namespace trireme
