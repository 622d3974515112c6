#include "model/embedding_unit.h"

namespace trireme {

at::Tensor EmbeddingUnit::Forward(const at::Tensor&, const MicroBatch& batch, std::unique_ptr<Saved>& saved,
                                  Arena& keep, Arena&) {
  auto kept = std::make_unique<Kept>();
  kept->ids = batch.tokens_BT.view({-1});
  const at::Tensor y = keep.Allocate({kept->ids.numel(), hidden_}, type_);
  embedding_.Forward(kept->ids, y);
  saved = std::move(kept);
  return y;
}

at::Tensor EmbeddingUnit::Backward(const at::Tensor& dy, Saved& saved, bool with_weights, Arena&, Arena&) {
  static_cast<Kept&>(saved).dy = dy;
  if (with_weights) BackwardWeight(saved);
  return {};
}

void EmbeddingUnit::BackwardWeight(Saved& saved) {
  const Kept& kept = static_cast<Kept&>(saved);
  embedding_.BackwardWeight(kept.ids, kept.dy);
}

}  // namespace trireme
