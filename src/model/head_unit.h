#pragma once
// Final norm, output head and loss. The gradient of the logits is made in place at the end of forward: the divisor of
// the loss is known by then, and one [T, V] tensor is enough.

#include "model/norm.h"
#include "model/stage.h"
#include "model/unit.h"
#include "tensor_parallel/linear.h"
#include "tensor_parallel/vocab_parallel.h"

namespace trireme {

class HeadUnit : public Unit {
 public:
  HeadUnit(RmsNorm norm, ColumnParallelLinear head, VocabShard shard, Communicator& tp)
      : norm_(std::move(norm)), head_(std::move(head)), shard_(shard), tp_(tp) {}

  at::Tensor Forward(const at::Tensor& x, const MicroBatch& batch, std::unique_ptr<Saved>& saved, Arena& keep,
                     Arena& scratch) override;
  at::Tensor Backward(const at::Tensor& dy, Saved& saved, bool with_weights, Arena& keep, Arena& scratch) override;
  void BackwardWeight(Saved& saved) override;

  static double LossSum(const Saved& saved) { return static_cast<const Kept&>(saved).loss_sum; }
  // Logits of the rows of x over the whole vocabulary, [rows, vocab].
  at::Tensor Logits(const at::Tensor& x, int64_t vocab, Arena& scratch) const;

 private:
  struct Kept : Saved {
    RmsNorm::Kept norm;
    at::Tensor dlogits;
    double loss_sum = 0;
  };
  RmsNorm norm_;
  ColumnParallelLinear head_;
  VocabShard shard_;
  Communicator& tp_;
};

}  // namespace trireme
