#pragma once
// Embedding and cross entropy with the vocabulary cut over the tensor-parallel axis: no rank ever holds a whole row of
// logits. A shard holds `rows` rows from `first_row`, of which the first `valid` are real and the rest padding.

#include "comm/communicator.h"
#include "kernels/arena.h"
#include "kernels/param.h"

namespace trireme {

struct VocabShard {
  int64_t first_row = 0, rows = 0, valid = 0;
  // Of a vocabulary of `vocab` padded to `padded` rows over `tp` ranks.
  static VocabShard Of(int64_t vocab, int64_t padded, int tp, int tp_rank);
};

class VocabParallelEmbedding {
 public:
  VocabParallelEmbedding(Param table, VocabShard shard, Communicator& tp)
      : table_(std::move(table)), shard_(shard), tp_(tp) {}
  void Forward(const at::Tensor& ids_T, const at::Tensor& y_TD) const;
  void BackwardWeight(const at::Tensor& ids_T, const at::Tensor& dy_TD) const;

 private:
  Param table_;
  VocabShard shard_;
  Communicator& tp_;
};

// Turns local logits in place into the gradient of scale * sum(loss) and returns the sum of the losses of valid labels,
// equal on all ranks. Collective over tp.
double VocabParallelCrossEntropy(const at::Tensor& logits_TV, const VocabShard& shard, const at::Tensor& labels_T,
                                 double scale, Communicator& tp, Arena& scratch);

}  // namespace trireme
