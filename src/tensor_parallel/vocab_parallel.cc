#include "tensor_parallel/vocab_parallel.h"

#include <algorithm>

#include "kernels/kernels.h"

namespace trireme {

VocabShard VocabShard::Of(int64_t vocab, int64_t padded, int tp, int tp_rank) {
  VocabShard shard;
  shard.rows = padded / tp;
  shard.first_row = shard.rows * tp_rank;
  shard.valid = std::clamp<int64_t>(vocab - shard.first_row, 0, shard.rows);
  return shard;
}

void VocabParallelEmbedding::Forward(const at::Tensor& ids, const at::Tensor& y) const {
  kernels::EmbeddingForward(ids, table_.value, shard_.first_row, y);
  tp_.AllReduce(y)->Wait();
}

void VocabParallelEmbedding::BackwardWeight(const at::Tensor& ids, const at::Tensor& dy) const {
  kernels::EmbeddingBackward(ids, dy, shard_.first_row, table_.TakeGradBeta(), table_.grad);
}

double VocabParallelCrossEntropy(const at::Tensor& logits, const VocabShard& shard, const at::Tensor& labels,
                                 double scale, Communicator& tp, Arena& scratch) {
  const ArenaScope scope(scratch);
  const int64_t rows = logits.size(0);
  const at::Tensor max = scratch.Allocate({rows}, logits.scalar_type());
  kernels::CrossEntropyMax(logits, shard.valid, max);
  tp.AllReduce(max, ReduceOp::kMax)->Wait();
  // Row sums and the label's logit travel in one message.
  const at::Tensor sums = scratch.Allocate({2, rows}, logits.scalar_type());
  kernels::CrossEntropyExp(logits, shard.valid, shard.first_row, labels, max, sums[0], sums[1]);
  tp.AllReduce(sums)->Wait();
  return kernels::CrossEntropyGrad(logits, shard.valid, shard.first_row, labels, sums[0], sums[1], scale);
}

}  // namespace trireme
