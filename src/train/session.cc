#include "train/session.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/tensor.h>

#include <algorithm>
#include <cmath>

#include "base/hash.h"
#include "checkpoint/hugging_face.h"
#include "model_spec/model_spec.h"

namespace trireme {
namespace {

// The part of a local tensor that is not padding.
at::Tensor WithoutPadding(const LocalParam& param, at::Tensor local) {
  for (size_t d = 0; d < param.rectangle.size.size(); ++d) {
    local = local.narrow(static_cast<int64_t>(d), 0, param.rectangle.size[d]);
  }
  return local;
}

std::string StateName(const std::string& kind, const std::string& param) { return "optimizer." + kind + "." + param; }

std::vector<UpdateRange> MakeRanges(const ParamStore& params, const OptimizerOptions& options) {
  const auto excluded = [&](const char* kind) {
    return std::ranges::find(options.no_decay, kind) != options.no_decay.end();
  };
  std::vector<UpdateRange> ranges;
  for (const ParamStore::ParamRun& run : params.Runs()) {
    const bool no_decay = (run.kind == ParamKind::kNorm && excluded("norms")) ||
                          (run.kind == ParamKind::kBias && excluded("biases")) ||
                          (run.kind == ParamKind::kEmbedding && excluded("embeddings"));
    ranges.push_back({run.begin, run.end, no_decay ? 0.0 : options.weight_decay, run.counts});
  }
  return ranges;
}

}  // namespace

at::ScalarType ComputeType(const PrecisionOptions& precision) {
  return precision.compute == "fp64" ? at::kDouble : at::kFloat;
}

void LoadParameters(const TensorSource& source, const ParamStore& params) {
  for (const LocalParam& param : params.table().params()) {
    const std::string& name = param.spec.name;
    if (!source.Has(name)) FailUser("{}: missing among the {} tensors to load", name, source.Names().size());
    if (source.ShapeOf(name) != param.spec.shape) {
      FailUser("{}: expected shape {}, got {}; model.* must describe the saved model", name,
               ShapeText(param.spec.shape), ShapeText(source.ShapeOf(name)));
    }
    source.Read(name, param.rectangle, WithoutPadding(param, params.Value(name)));
  }
}

Session::Session(const Config& config, const TrainingData& data, Communicator& world)
    : config_(config), mesh_(config.parallel), coordinate_(mesh_.At(world.rank())), comms_(world, mesh_, recorder_) {
  const int tp = mesh_.Size(Axis::kTp);
  params_ = std::make_unique<ParamStore>(ShardingTable(ParamTable(config_.model, tp), tp, coordinate_[Axis::kTp]),
                                         ComputeType(config_.precision));
  if (config_.model.from.empty()) {
    params_->Initialize(config_.seed);
  } else {
    LoadParameters(*OpenHuggingFaceWeights(config_.model.from), *params_);
  }
  stage_ = std::make_unique<ModelStage>(config_.model, ComputeType(config_.precision), *params_, comms_.Get(Axis::kTp),
                                        0, static_cast<int>(config_.model.layers) + 2);
  kept_ = stage_->NewActivations();
  reducer_ = std::make_unique<Reducer>(*params_, comms_.grad(), comms_.Get(Axis::kTp));
  ranges_ = MakeRanges(*params_, config_.optimizer);
  optimizer_ = MakeOptimizer(config_.optimizer, params_->values(), params_->grads(), ranges_);

  const int64_t seq = config_.model.seq;
  loader_ = std::make_unique<BatchLoader>(data.prefix, seq, config_.model.vocab, data.loss_mask, 0, data.train_tokens);
  sampler_ = std::make_unique<Sampler>(config_.seed, NumSamples(data.train_tokens, seq), config_.batch.global,
                                       config_.data.shuffle);
  validation_samples_ = NumSamples(data.validation_tokens, seq);
  if (validation_samples_ > 0) {
    validation_ = std::make_unique<BatchLoader>(data.prefix, seq, config_.model.vocab, data.loss_mask,
                                                data.train_tokens, data.validation_tokens);
  }
}

std::vector<MicroBatch> Session::LoadMicroBatches(BatchLoader& loader, const std::vector<int64_t>& samples) const {
  std::vector<MicroBatch> batches;
  const auto micro = static_cast<size_t>(config_.batch.micro);
  for (size_t begin = 0; begin < samples.size(); begin += micro) {
    const size_t rows = std::min(micro, samples.size() - begin);
    MicroBatch batch;
    batch.tokens_BT = at::empty({static_cast<int64_t>(rows), config_.model.seq}, at::kLong);
    batch.labels_BT = at::empty_like(batch.tokens_BT);
    loader.Load(std::span(samples).subspan(begin, rows), batch.tokens_BT, batch.labels_BT);
    batches.push_back(std::move(batch));
  }
  return batches;
}

double Session::ForwardBackward(const std::vector<MicroBatch>& batches) {
  double loss_sum = 0;
  params_->BeginStep();
  for (size_t i = 0; i < batches.size(); ++i) {
    stage_->Forward({}, batches[i], *kept_);
    loss_sum += stage_->LossSum(*kept_);
    const bool last = i + 1 == batches.size();
    stage_->Backward({}, *kept_, [&](int unit) {
      if (last) reducer_->UnitReady(unit);
    });
  }
  reducer_->Finish();
  return loss_sum;
}

StepResult Session::Step(int64_t step, bool want_stop, const std::function<void()>& on_gradients) {
  const int64_t consumed = (step - 1) * config_.batch.global;
  std::vector<MicroBatch> batches =
      LoadMicroBatches(*loader_, sampler_->Batch(consumed, mesh_.Size(Axis::kDp), coordinate_[Axis::kDp]));

  int64_t valid = 0;
  for (const MicroBatch& batch : batches) valid += batch.labels_BT.ne(-100).sum().item<int64_t>();
  // One message carries what all ranks must agree on before the step: the divisor of the loss and a wish to stop.
  at::Tensor agreed = at::tensor({coordinate_[Axis::kTp] == 0 ? valid : 0, int64_t{want_stop}}, at::kLong);
  comms_.world().AllReduce(agreed)->Wait();
  StepResult result;
  result.tokens = agreed[0].item<int64_t>();
  result.stop = agreed[1].item<int64_t>() > 0;
  result.lr = LearningRate(config_.optimizer, step, config_.train.steps);
  for (MicroBatch& batch : batches)
    batch.loss_scale = result.tokens > 0 ? 1.0 / static_cast<double>(result.tokens) : 0.0;

  at::Tensor loss = at::empty({1}, at::kDouble);
  loss.fill_(ForwardBackward(batches));
  comms_.grad().AllReduce(loss)->Wait();
  result.loss = result.tokens > 0 ? loss.item<double>() / static_cast<double>(result.tokens) : 0.0;
  result.grad_norm = GlobalGradNorm(params_->grads(), ranges_, comms_.Get(Axis::kTp));
  if (on_gradients) on_gradients();

  const bool finite = std::isfinite(result.grad_norm);
  if (!finite && config_.optimizer.on_nan == "stop") {
    Fail(
        "step {}: the gradient norm is {} (loss {}); the weights are those before this step. Lower optimizer.lr, or "
        "set "
        "optimizer.on_nan: skip",
        step, result.grad_norm, result.loss);
  }
  result.updated = finite && result.tokens > 0;
  if (result.updated) optimizer_->Step(step, result.lr, ClipScale(result.grad_norm, config_.optimizer.clip));
  return result;
}

uint64_t Session::DataHash(int64_t step) {
  const int64_t mine = config_.batch.global / mesh_.Size(Axis::kDp);
  at::Tensor local = at::empty({mine}, at::kLong), all = at::empty({config_.batch.global}, at::kLong);
  int64_t* out = local.mutable_data_ptr<int64_t>();
  const std::vector<int64_t> samples =
      sampler_->Batch((step - 1) * config_.batch.global, mesh_.Size(Axis::kDp), coordinate_[Axis::kDp]);
  for (const MicroBatch& batch : LoadMicroBatches(*loader_, samples)) {
    for (int64_t row = 0; row < batch.tokens_BT.size(0); ++row) {
      StreamingHash64 hash;
      for (const at::Tensor& part : {batch.tokens_BT[row], batch.labels_BT[row]}) {
        hash.Update({static_cast<const std::byte*>(part.const_data_ptr()), part.nbytes()});
      }
      *out++ = static_cast<int64_t>(hash.Value());
    }
  }
  comms_.Get(Axis::kDp).AllGather(all, local)->Wait();
  return Hash64({static_cast<const std::byte*>(all.const_data_ptr()), all.nbytes()});
}

double Session::ValidationLoss() {
  const int dp = mesh_.Size(Axis::kDp), dp_rank = coordinate_[Axis::kDp];
  double loss_sum = 0, valid = 0;
  // Every rank runs the same number of passes: tensor-parallel peers meet in each.
  std::vector<int64_t> mine;
  for (int64_t i = dp_rank; i < validation_samples_; i += dp) mine.push_back(i);
  for (const MicroBatch& batch : LoadMicroBatches(*validation_, mine)) {
    stage_->Forward({}, batch, *kept_);
    loss_sum += stage_->LossSum(*kept_);
    valid += batch.labels_BT.ne(-100).sum().item<double>();
  }
  at::Tensor sums = at::tensor({loss_sum, valid}, at::kDouble);
  comms_.grad().AllReduce(sums)->Wait();
  return sums[1].item<double>() > 0 ? sums[0].item<double>() / sums[1].item<double>() : 0.0;
}

std::vector<TensorPiece> Session::CheckpointPieces() const {
  std::vector<TensorPiece> pieces;
  if (coordinate_[Axis::kDp] != 0 || coordinate_[Axis::kCp] != 0) return pieces;
  const std::map<std::string, at::Tensor> state = optimizer_->state();
  for (const LocalParam& param : params_->table().params()) {
    if (!param.counts) continue;
    const std::string& name = param.spec.name;
    pieces.push_back({name, param.spec.shape, param.rectangle, WithoutPadding(param, params_->Value(name))});
    const ElementRange range = params_->RangeOf(name);
    for (const auto& [kind, flat] : state) {
      const at::Tensor local = flat.narrow(0, range.begin, range.size()).view(param.local_shape);
      pieces.push_back({StateName(kind, name), param.spec.shape, param.rectangle, WithoutPadding(param, local)});
    }
  }
  return pieces;
}

void Session::Load(const TensorSource& source) {
  LoadParameters(source, *params_);
  for (const auto& [kind, flat] : optimizer_->state()) {
    for (const LocalParam& param : params_->table().params()) {
      const ElementRange range = params_->RangeOf(param.spec.name);
      const at::Tensor local = flat.narrow(0, range.begin, range.size()).view(param.local_shape);
      source.Read(StateName(kind, param.spec.name), param.rectangle, WithoutPadding(param, local));
    }
  }
}

Bytes Session::PeakBytes() const {
  int64_t bytes = static_cast<int64_t>(params_->values().nbytes() + params_->grads().nbytes());
  for (const auto& [kind, flat] : optimizer_->state()) bytes += static_cast<int64_t>(flat.nbytes());
  return Bytes(bytes) + stage_->peak();
}

}  // namespace trireme
