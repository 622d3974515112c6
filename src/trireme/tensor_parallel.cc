#include "trireme/tensor_parallel.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "base/philox.h"

namespace trireme::nn {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::Variable;
using torch::autograd::variable_list;

at::Tensor Sum(const at::Tensor& x, Communicator& tp) {
  const at::NoGradGuard no_grad;
  at::Tensor sum = x.contiguous().clone();
  tp.AllReduce(sum)->Wait();
  return sum;
}

Communicator& Saved(AutogradContext* context) {
  return *reinterpret_cast<Communicator*>(context->saved_data["tp"].toInt());
}
void Save(AutogradContext* context, Communicator& tp) { context->saved_data["tp"] = reinterpret_cast<int64_t>(&tp); }

struct CopyFunction : torch::autograd::Function<CopyFunction> {
  static Variable forward(AutogradContext* context, const Variable& x, Communicator* tp) {
    Save(context, *tp);
    return x.view_as(x);
  }
  static variable_list backward(AutogradContext* context, const variable_list& dy) {
    return {Sum(dy[0], Saved(context)), Variable()};
  }
};

struct ReduceFunction : torch::autograd::Function<ReduceFunction> {
  static Variable forward(AutogradContext*, const Variable& x, Communicator* tp) { return Sum(x, *tp); }
  static variable_list backward(AutogradContext*, const variable_list& dy) { return {dy[0], Variable()}; }
};

// Box [row0, row0 + rows) x [column0, column0 + columns) of the whole [.., width] tensor `name`, uniform in +-bound.
at::Tensor Uniform(const ParallelLinearOptions& options, const std::string& name, int64_t width, int64_t row0,
                   int64_t rows, int64_t column0, int64_t columns, double bound) {
  const Philox philox(options.seed, options.name + "." + name);
  at::Tensor t = at::empty({rows, columns}, at::kDouble);
  double* out = t.mutable_data_ptr<double>();
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; ++c) {
      const uint32_t bits = philox.At(static_cast<uint64_t>((row0 + r) * width + column0 + c))[0];
      *out++ = bound * (2 * (static_cast<double>(bits) + 0.5) / 4294967296.0 - 1);
    }
  }
  return t.to(options.type);
}

int64_t Part(const char* layer, const char* what, int64_t whole, const Communicator& tp) {
  if (whole <= 0 || whole % tp.size() != 0) {
    Fail("{}: {} {} is not a multiple of the {} ranks of group '{}'", layer, what, whole, tp.size(), tp.name());
  }
  return whole / tp.size();
}

}  // namespace

at::Tensor CopyToTensorParallel(const at::Tensor& x, Communicator& tp) { return CopyFunction::apply(x, &tp); }
at::Tensor ReduceFromTensorParallel(const at::Tensor& x, Communicator& tp) { return ReduceFunction::apply(x, &tp); }

ColumnParallelLinearImpl::ColumnParallelLinearImpl(int64_t in, int64_t out, Communicator& tp,
                                                   ParallelLinearOptions options)
    : tp_(tp) {
  const int64_t mine = Part("ColumnParallelLinear", "out", out, tp), first = mine * tp.rank();
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = register_parameter("weight", Uniform(options, "weight", in, first, mine, 0, in, bound));
  bias = register_parameter(
      "bias", options.bias ? Uniform(options, "bias", 1, first, mine, 0, 1, bound).view({mine}) : at::Tensor());
}

at::Tensor ColumnParallelLinearImpl::forward(const at::Tensor& x) {
  return at::linear(CopyToTensorParallel(x, tp_), weight, bias);
}

RowParallelLinearImpl::RowParallelLinearImpl(int64_t in, int64_t out, Communicator& tp, ParallelLinearOptions options)
    : tp_(tp) {
  const int64_t mine = Part("RowParallelLinear", "in", in, tp);
  const double bound = 1 / std::sqrt(static_cast<double>(in));
  weight = register_parameter("weight", Uniform(options, "weight", in, 0, out, mine * tp.rank(), mine, bound));
  bias = register_parameter("bias",
                            options.bias ? Uniform(options, "bias", 1, 0, out, 0, 1, bound).view({out}) : at::Tensor());
}

at::Tensor RowParallelLinearImpl::forward(const at::Tensor& x) {
  const at::Tensor y = ReduceFromTensorParallel(at::linear(x, weight), tp_);
  return bias.defined() ? y + bias : y;
}

}  // namespace trireme::nn
