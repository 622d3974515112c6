#include "model/block.h"

namespace trireme {

namespace {

at::Tensor AttentionScratch(const kernels::AttentionShape& shape, Arena& scratch, at::ScalarType type) {
  return scratch.Allocate({kernels::AttentionScratch(shape)}, type);
}

}  // namespace

void Block::Rotate(const at::Tensor& qkv, const kernels::AttentionShape& shape, bool inverse) const {
  kernels::Rope(qkv, shape.heads + shape.kv_heads, shape.head_dim, shape.seq, cos_, sin_, inverse);
}

at::Tensor Block::Forward(const at::Tensor& x, const MicroBatch& batch, std::unique_ptr<Saved>& saved, Arena& keep,
                          Arena& scratch) {
  auto kept = std::make_unique<Kept>();
  const int64_t tokens = x.size(0);
  const at::ScalarType type = x.scalar_type();
  kept->shape = shape_;
  kept->shape.seq = batch.tokens_BT.size(1);

  const at::Tensor n1 = layers_.norm1.Forward(x, kept->norm1, keep);
  kept->qkv = keep.Allocate({tokens, layers_.qkv.local_out()}, type);
  layers_.qkv.Forward(n1, kept->qkv);
  Rotate(kept->qkv, kept->shape, false);
  kept->attention = keep.Allocate({tokens, layers_.output.local_in()}, type);
  kept->log_sum_exp = keep.Allocate({tokens / kept->shape.seq, shape_.heads, kept->shape.seq}, type);
  {
    const ArenaScope scope(scratch);
    kernels::CausalAttentionForward(kept->qkv, kept->shape, kept->attention, kept->log_sum_exp,
                                    AttentionScratch(kept->shape, scratch, type));
  }
  const at::Tensor h = keep.Allocate(x.sizes(), type);
  layers_.output.Forward(kept->attention, h);
  h.add_(x);

  const at::Tensor n2 = layers_.norm2.Forward(h, kept->norm2, keep);
  kept->gate_up = keep.Allocate({tokens, layers_.gate_up.local_out()}, type);
  layers_.gate_up.Forward(n2, kept->gate_up);
  kept->activated = keep.Allocate({tokens, layers_.down.local_in()}, type);
  kernels::SwiGluForward(kept->gate_up, kept->activated);
  const at::Tensor y = keep.Allocate(x.sizes(), type);
  layers_.down.Forward(kept->activated, y);
  y.add_(h);
  saved = std::move(kept);
  return y;
}

at::Tensor Block::Backward(const at::Tensor& dy, Saved& saved, bool with_weights, Arena& keep, Arena& scratch) {
  Kept& kept = static_cast<Kept&>(saved);
  const at::ScalarType type = dy.scalar_type();
  const ArenaScope scope(scratch);
  const auto like = [&](Arena& arena, const at::Tensor& t) { return arena.Allocate(t.sizes(), type); };

  kept.dy = dy;
  const at::Tensor dactivated = like(scratch, kept.activated);
  layers_.down.BackwardInput(dy, dactivated);
  kept.dgate_up = like(keep, kept.gate_up);
  kernels::SwiGluBackward(dactivated, kept.gate_up, kept.dgate_up);
  const at::Tensor dn2 = like(keep, dy);
  WorkPtr sum = layers_.gate_up.BackwardInput(kept.dgate_up, dn2);
  if (with_weights) {
    layers_.down.BackwardWeight(dy, kept.activated);
    layers_.gate_up.BackwardWeight(kept.dgate_up, kept.norm2.y);
  }
  sum->Wait();
  kept.dh = like(keep, dy);
  kept.dh.copy_(dy);
  layers_.norm2.BackwardInput(dn2, kept.norm2, kept.dh);

  const at::Tensor dattention = like(scratch, kept.attention);
  layers_.output.BackwardInput(kept.dh, dattention);
  kept.dqkv = like(keep, kept.qkv);
  kernels::CausalAttentionBackward(dattention, kept.qkv, kept.attention, kept.log_sum_exp, kept.shape, kept.dqkv,
                                   AttentionScratch(kept.shape, scratch, type));
  Rotate(kept.dqkv, kept.shape, true);
  const at::Tensor dn1 = like(keep, dy);
  sum = layers_.qkv.BackwardInput(kept.dqkv, dn1);
  if (with_weights) {
    layers_.output.BackwardWeight(kept.dh, kept.attention);
    layers_.qkv.BackwardWeight(kept.dqkv, kept.norm1.y);
  }
  sum->Wait();
  const at::Tensor dx = like(keep, dy);
  dx.copy_(kept.dh);
  layers_.norm1.BackwardInput(dn1, kept.norm1, dx);
  if (with_weights) {
    layers_.norm2.BackwardWeight(kept.norm2);
    layers_.norm1.BackwardWeight(kept.norm1);
  }
  return dx;
}

void Block::BackwardWeight(Saved& saved) {
  const Kept& kept = static_cast<Kept&>(saved);
  layers_.down.BackwardWeight(kept.dy, kept.activated);
  layers_.gate_up.BackwardWeight(kept.dgate_up, kept.norm2.y);
  layers_.output.BackwardWeight(kept.dh, kept.attention);
  layers_.qkv.BackwardWeight(kept.dqkv, kept.norm1.y);
  layers_.norm2.BackwardWeight(kept.norm2);
  layers_.norm1.BackwardWeight(kept.norm1);
}

}  // namespace trireme
