#pragma once
// Linear layers cut over the tensor-parallel axis (Shoeybi et al. 2019, Megatron-LM, section 3). Weights are [out, in].
// The two collectives of a block half are here: the sum behind a row-parallel forward (Megatron's g), and the sum of a
// column-parallel layer's input gradient (its f).

#include "comm/communicator.h"
#include "kernels/param.h"

namespace trireme {

// y = x W^T with W cut by rows (outputs): no communication forward, dx is a sum over tp.
class ColumnParallelLinear {
 public:
  ColumnParallelLinear(Param weight, Communicator& tp) : weight_(std::move(weight)), tp_(tp) {}
  int64_t local_out() const { return weight_.value.size(0); }
  void Forward(const at::Tensor& x, const at::Tensor& y) const;
  // Starts the sum of dx over tp; the caller does something useful (BackwardWeight) and then waits.
  [[nodiscard]] WorkPtr BackwardInput(const at::Tensor& dy, const at::Tensor& dx) const;
  void BackwardWeight(const at::Tensor& dy, const at::Tensor& x) const;

 private:
  Param weight_;
  Communicator& tp_;
};

// y = x W^T with W cut by columns (inputs): y is a sum over tp, nothing to say backward.
class RowParallelLinear {
 public:
  RowParallelLinear(Param weight, Communicator& tp) : weight_(std::move(weight)), tp_(tp) {}
  int64_t local_in() const { return weight_.value.size(1); }
  void Forward(const at::Tensor& x, const at::Tensor& y) const;
  void BackwardInput(const at::Tensor& dy, const at::Tensor& dx) const;
  void BackwardWeight(const at::Tensor& dy, const at::Tensor& x) const;

 private:
  Param weight_;
  Communicator& tp_;
};

}  // namespace trireme
