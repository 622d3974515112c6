#pragma once
// Token ids to the residual stream.

#include "model/stage.h"
#include "model/unit.h"
#include "tensor_parallel/vocab_parallel.h"

namespace trireme {

class EmbeddingUnit : public Unit {
 public:
  EmbeddingUnit(VocabParallelEmbedding embedding, int64_t hidden, at::ScalarType type)
      : embedding_(std::move(embedding)), hidden_(hidden), type_(type) {}
  at::Tensor Forward(const at::Tensor& x, const MicroBatch& batch, std::unique_ptr<Saved>& saved, Arena& keep,
                     Arena& scratch) override;
  at::Tensor Backward(const at::Tensor& dy, Saved& saved, bool with_weights, Arena& keep, Arena& scratch) override;
  void BackwardWeight(Saved& saved) override;

 private:
  struct Kept : Saved {
    at::Tensor ids, dy;
  };
  VocabParallelEmbedding embedding_;
  int64_t hidden_;
  at::ScalarType type_;
};

}  // namespace trireme
