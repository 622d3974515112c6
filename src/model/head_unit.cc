#include "model/head_unit.h"

#include <ATen/ops/empty.h>

namespace trireme {

at::Tensor HeadUnit::Forward(const at::Tensor& x, const MicroBatch& batch, std::unique_ptr<Saved>& saved, Arena& keep,
                             Arena& scratch) {
  auto kept = std::make_unique<Kept>();
  const at::Tensor y = norm_.Forward(x, kept->norm, keep);
  kept->dlogits = keep.Allocate({x.size(0), head_.local_out()}, x.scalar_type());
  head_.Forward(y, kept->dlogits);
  kept->loss_sum =
      VocabParallelCrossEntropy(kept->dlogits, shard_, batch.labels_BT.view({-1}), batch.loss_scale, tp_, scratch);
  saved = std::move(kept);
  return {};
}

at::Tensor HeadUnit::Backward(const at::Tensor&, Saved& saved, bool with_weights, Arena& keep, Arena&) {
  Kept& kept = static_cast<Kept&>(saved);
  const at::Tensor& x = kept.norm.x;
  const at::Tensor dy = keep.Allocate(x.sizes(), x.scalar_type()), dx = keep.Allocate(x.sizes(), x.scalar_type());
  const WorkPtr sum = head_.BackwardInput(kept.dlogits, dy);
  if (with_weights) head_.BackwardWeight(kept.dlogits, kept.norm.y);
  sum->Wait();
  dx.zero_();
  norm_.BackwardInput(dy, kept.norm, dx);
  if (with_weights) norm_.BackwardWeight(kept.norm);
  return dx;
}

void HeadUnit::BackwardWeight(Saved& saved) {
  const Kept& kept = static_cast<Kept&>(saved);
  head_.BackwardWeight(kept.dlogits, kept.norm.y);
  norm_.BackwardWeight(kept.norm);
}

at::Tensor HeadUnit::Logits(const at::Tensor& x, int64_t vocab, Arena& scratch) const {
  const ArenaScope scope(scratch);
  RmsNorm::Kept kept;
  const at::Tensor y = norm_.Forward(x, kept, scratch);
  const int64_t rows = x.size(0);
  const at::Tensor local = at::empty({rows, head_.local_out()}, x.options()),
                   all = at::empty({tp_.size(), rows, head_.local_out()}, x.options());
  head_.Forward(y, local);
  tp_.AllGather(all, local)->Wait();
  return all.transpose(0, 1).reshape({rows, -1}).narrow(1, 0, vocab).contiguous();
}

}  // namespace trireme
