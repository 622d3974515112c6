#include "tensor_parallel/linear.h"

#include "kernels/kernels.h"

namespace trireme {

void ColumnParallelLinear::Forward(const at::Tensor& x, const at::Tensor& y) const {
  kernels::MatmulNT(x, weight_.value, 0, y);
}

WorkPtr ColumnParallelLinear::BackwardInput(const at::Tensor& dy, const at::Tensor& dx) const {
  kernels::MatmulNN(dy, weight_.value, 0, dx);
  return tp_.AllReduce(dx);
}

void ColumnParallelLinear::BackwardWeight(const at::Tensor& dy, const at::Tensor& x) const {
  kernels::MatmulTN(dy, x, weight_.TakeGradBeta(), weight_.grad);
}

void RowParallelLinear::Forward(const at::Tensor& x, const at::Tensor& y) const {
  kernels::MatmulNT(x, weight_.value, 0, y);
  tp_.AllReduce(y)->Wait();
}

void RowParallelLinear::BackwardInput(const at::Tensor& dy, const at::Tensor& dx) const {
  kernels::MatmulNN(dy, weight_.value, 0, dx);
}

void RowParallelLinear::BackwardWeight(const at::Tensor& dy, const at::Tensor& x) const {
  kernels::MatmulTN(dy, x, weight_.TakeGradBeta(), weight_.grad);
}

}  // namespace trireme
