#include "model/stage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <fmt/format.h>

#include <algorithm>

#include "model/block.h"
#include "model/embedding_unit.h"
#include "model/head_unit.h"
#include "model_spec/model_spec.h"

namespace trireme {

class ModelStage::Activations {
 public:
  Arena arena;
  std::vector<std::unique_ptr<Saved>> saved;  // one a unit
};

ModelStage::ModelStage(const ModelOptions& model, at::ScalarType compute, ParamSource& params, Communicator& tp,
                       int first_unit, int last_unit)
    : model_(model), first_unit_(first_unit), last_unit_(last_unit) {
  const int64_t head_dim = model.head_dim, ranks = tp.size();
  const VocabShard shard = VocabShard::Of(model.vocab, PaddedVocab(model, tp.size()), tp.size(), tp.rank());
  const kernels::AttentionShape shape{model.seq, model.heads / ranks, std::max<int64_t>(1, model.kv_heads / ranks),
                                      head_dim};
  const at::Tensor cos = at::empty({model.seq, head_dim / 2}, compute), sin = at::empty_like(cos);
  kernels::RopeTables(model.seq, head_dim, model.rope_theta, cos, sin);
  const int head = static_cast<int>(model.layers) + 1;
  for (int unit = first_unit; unit < last_unit; ++unit) {
    if (unit == 0) {
      units_.push_back(std::make_unique<EmbeddingUnit>(
          VocabParallelEmbedding(params.Get({"model.embed_tokens.weight"}), shard, tp), model.hidden, compute));
    } else if (unit < head) {
      const auto name = [&](const char* part) { return fmt::format("model.layers.{}.{}.weight", unit - 1, part); };
      Block::Layers layers{
          RmsNorm(params.Get({name("input_layernorm")}), model.norm_eps),
          RmsNorm(params.Get({name("post_attention_layernorm")}), model.norm_eps),
          ColumnParallelLinear(
              params.Get({name("self_attn.q_proj"), name("self_attn.k_proj"), name("self_attn.v_proj")}), tp),
          ColumnParallelLinear(params.Get({name("mlp.gate_proj"), name("mlp.up_proj")}), tp),
          RowParallelLinear(params.Get({name("self_attn.o_proj")}), tp),
          RowParallelLinear(params.Get({name("mlp.down_proj")}), tp)};
      units_.push_back(std::make_unique<Block>(std::move(layers), shape, cos, sin));
    } else {
      units_.push_back(std::make_unique<HeadUnit>(
          RmsNorm(params.Get({"model.norm.weight"}), model.norm_eps),
          ColumnParallelLinear(params.Get({model.tied ? "model.embed_tokens.weight" : "lm_head.weight"}), tp), shard,
          tp));
    }
  }
}

ModelStage::~ModelStage() = default;

std::shared_ptr<ModelStage::Activations> ModelStage::NewActivations() const {
  auto kept = std::make_shared<Activations>();
  kept->saved.resize(units_.size());
  return kept;
}

at::Tensor ModelStage::Forward(const at::Tensor& input, const MicroBatch& batch, Activations& kept) {
  kept.arena.Reset();  // a forward without a backward (validation) leaves nothing behind
  at::Tensor x = input;
  for (size_t u = 0; u < units_.size(); ++u) x = units_[u]->Forward(x, batch, kept.saved[u], kept.arena, scratch_);
  activations_peak_ = std::max(activations_peak_, kept.arena.peak());
  return x;
}

double ModelStage::LossSum(const Activations& kept) const { return HeadUnit::LossSum(*kept.saved.back()); }

at::Tensor ModelStage::BackwardUnits(const at::Tensor& dy, Activations& kept, bool with_weights,
                                     const std::function<void(int)>& unit_done) {
  at::Tensor gradient = dy;
  for (size_t u = units_.size(); u-- > 0;) {
    gradient = units_[u]->Backward(gradient, *kept.saved[u], with_weights, kept.arena, scratch_);
    if (with_weights && unit_done) unit_done(first_unit_ + static_cast<int>(u));
  }
  activations_peak_ = std::max(activations_peak_, kept.arena.peak());
  return gradient;
}

at::Tensor ModelStage::Backward(const at::Tensor& dy, Activations& kept,
                                const std::function<void(int unit)>& unit_done) {
  return BackwardUnits(dy, kept, true, unit_done);
}

at::Tensor ModelStage::BackwardInput(const at::Tensor& dy, Activations& kept) {
  return BackwardUnits(dy, kept, false, {});
}

void ModelStage::BackwardWeight(Activations& kept, const std::function<void(int unit)>& unit_done) {
  for (size_t u = units_.size(); u-- > 0;) {
    units_[u]->BackwardWeight(*kept.saved[u]);
    if (unit_done) unit_done(first_unit_ + static_cast<int>(u));
  }
}

at::Tensor ModelStage::LastLogits(const at::Tensor& tokens_BT) {
  MicroBatch batch;
  batch.tokens_BT = tokens_BT;
  Arena keep;
  at::Tensor x;
  std::unique_ptr<Saved> saved;
  for (size_t u = 0; u + 1 < units_.size(); ++u) x = units_[u]->Forward(x, batch, saved, keep, scratch_);
  const at::Tensor last =
      x.view({tokens_BT.size(0), tokens_BT.size(1), -1}).select(1, tokens_BT.size(1) - 1).contiguous();
  return static_cast<const HeadUnit&>(*units_.back()).Logits(last, model_.vocab, scratch_);
}

Bytes ModelStage::peak() const { return activations_peak_ + scratch_.peak(); }

}  // namespace trireme
