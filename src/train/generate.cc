#include "train/generate.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/philox.h"
#include "checkpoint/checkpoint.h"
#include "comm/thread_world.h"
#include "config/config.h"
#include "model/stage.h"
#include "model_spec/model_spec.h"
#include "train/session.h"

namespace trireme {
namespace {

std::filesystem::path ChooseCheckpoint(const std::filesystem::path& path) {
  if (std::filesystem::exists(path / "manifest.json")) return path;
  if (const auto latest = LatestCheckpoint(path)) return *latest;
  if (const auto latest = LatestCheckpoint(path / "checkpoints")) return *latest;
  FailUser("--checkpoint {}: no complete checkpoint there (expected a step-N folder, or a run's folder)",
           path.string());
}

// Draws an index with probability softmax(logits / temperature), by one uniform number in [0, 1).
int64_t Draw(const at::Tensor& logits, double temperature, double uniform) {
  const at::Tensor values = logits.to(at::kDouble).contiguous();
  const double* at = values.const_data_ptr<double>();
  const int64_t n = values.numel();
  const int64_t best = std::max_element(at, at + n) - at;
  if (temperature <= 0) return best;
  std::vector<double> weight(static_cast<size_t>(n));
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += weight[static_cast<size_t>(i)] = std::exp((at[i] - at[best]) / temperature);
  double left = uniform * sum;
  for (int64_t i = 0; i < n; ++i) {
    left -= weight[static_cast<size_t>(i)];
    if (left < 0) return i;
  }
  return best;
}

}  // namespace

void Generate(const GenerateRequest& request, const std::function<void(std::string_view)>& emit) {
  const CheckpointReader reader(ChooseCheckpoint(request.checkpoint));
  const Config config = ParseConfig(reader.state().at("config").get<std::string>(), "checkpoint");
  if (request.prompt.empty()) FailUser("--prompt: empty; give at least one character to continue");
  RunThreadRanks(1, std::chrono::seconds(60), [&](Communicator& world) {
    ParamStore params(ShardingTable(ParamTable(config.model, 1), 1, 0), ComputeType(config.precision));
    LoadParameters(reader, params);
    ModelStage stage(config.model, ComputeType(config.precision), params, world, 0,
                     static_cast<int>(config.model.layers) + 2);
    const Philox random(request.seed, "generate");
    std::string text = request.prompt;
    for (int64_t i = 0; i < request.tokens; ++i) {
      const size_t seen = std::min(text.size(), static_cast<size_t>(config.model.seq));
      at::Tensor tokens = at::empty({1, static_cast<int64_t>(seen)}, at::kLong);
      for (size_t t = 0; t < seen; ++t) {
        tokens.mutable_data_ptr<int64_t>()[t] = static_cast<unsigned char>(text[text.size() - seen + t]);
      }
      const int64_t next = Draw(stage.LastLogits(tokens)[0].narrow(0, 0, 256), request.temperature,
                                random.Uniform(static_cast<uint64_t>(i)));
      text.push_back(static_cast<char>(next));
      emit(std::string_view(text).substr(text.size() - 1));
    }
  });
}

}  // namespace trireme
