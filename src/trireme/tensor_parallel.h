#pragma once
// Linear layers cut over tensor-parallel ranks, as torch::nn::Modules (Shoeybi et al. 2019, Megatron-LM, section 3).
//
//   nn::ColumnParallelLinear up(hidden, 4 * hidden, tp);     // each rank computes its columns of the output
//   nn::RowParallelLinear down(4 * hidden, hidden, tp);      // takes them; its output is summed over ranks
//   y = down(torch::gelu(up(x)));                        // x and y are whole on every rank
//
// The only collectives are one sum in RowParallelLinear's forward (g) and one in ColumnParallelLinear's backward (f).
// Every rank computes the loss alike; gradients of the cut weights belong to their rank, all others are equal on all
// ranks. Initial values are those of torch::nn::Linear in distribution, and depend on (seed, name, element) alone: any
// number of ranks starts with the same whole weight.

#include <torch/nn/cloneable.h>
#include <torch/nn/pimpl.h>

#include <string>

#include "comm/communicator.h"

namespace trireme::nn {

struct ParallelLinearOptions {
  bool bias = true;
  uint64_t seed = 0;
  std::string name = "linear";  // of the layer in the model: keeps the initial values of equal shapes apart
  at::ScalarType type = at::kFloat;
};

// y = x W^T + b with the rows of W and b cut over `tp`: [.., in] -> [.., out / tp]. out must be a multiple of tp.size()
// (Error). `tp` must outlive the module.
class ColumnParallelLinearImpl : public torch::nn::Module {
 public:
  ColumnParallelLinearImpl(int64_t in, int64_t out, Communicator& tp, ParallelLinearOptions options = {});
  at::Tensor forward(const at::Tensor& x);
  at::Tensor weight, bias;  // [out / tp, in], [out / tp]

 private:
  Communicator& tp_;
};
TORCH_MODULE(ColumnParallelLinear);

// y = x W^T + b with the columns of W cut: [.., in / tp] -> [.., out], the same on every rank. b is whole, added once.
class RowParallelLinearImpl : public torch::nn::Module {
 public:
  RowParallelLinearImpl(int64_t in, int64_t out, Communicator& tp, ParallelLinearOptions options = {});
  at::Tensor forward(const at::Tensor& x);
  at::Tensor weight, bias;  // [out, in / tp], [out]

 private:
  Communicator& tp_;
};
TORCH_MODULE(RowParallelLinear);

// The two collectives, for layers of one's own. f: x, backward sums the gradient over tp. g: the sum of x over tp,
// backward passes the gradient on.
at::Tensor CopyToTensorParallel(const at::Tensor& x, Communicator& tp);
at::Tensor ReduceFromTensorParallel(const at::Tensor& x, Communicator& tp);

}  // namespace trireme::nn
