#include "optim/optimizer.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros_like.h>

#include <cmath>
#include <utility>

#include "kernels/kernels.h"

namespace trireme {
namespace {

class AdamWOptimizer : public Optimizer {
 public:
  AdamWOptimizer(const OptimizerOptions& options, at::Tensor values, at::Tensor grads, std::vector<UpdateRange> ranges)
      : options_(options),
        values_(std::move(values)),
        grads_(std::move(grads)),
        first_(at::zeros_like(values_)),
        second_(at::zeros_like(values_)),
        ranges_(std::move(ranges)) {}

  void Step(int64_t step, double lr, double grad_scale) override {
    for (const UpdateRange& range : ranges_) {
      kernels::AdamW({lr, options_.betas[0], options_.betas[1], options_.eps, range.weight_decay, grad_scale, step},
                     range.begin, range.end - range.begin, values_, grads_, first_, second_);
    }
  }
  std::map<std::string, at::Tensor> state() const override { return {{"exp_avg", first_}, {"exp_avg_sq", second_}}; }

 private:
  const OptimizerOptions options_;
  at::Tensor values_, grads_, first_, second_;
  std::vector<UpdateRange> ranges_;
};

class SgdOptimizer : public Optimizer {
 public:
  SgdOptimizer(at::Tensor values, at::Tensor grads, std::vector<UpdateRange> ranges)
      : values_(std::move(values)), grads_(std::move(grads)), ranges_(std::move(ranges)) {}

  void Step(int64_t, double lr, double grad_scale) override {
    for (const UpdateRange& range : ranges_) {
      kernels::Sgd(lr, range.weight_decay, grad_scale, range.begin, range.end - range.begin, values_, grads_);
    }
  }
  std::map<std::string, at::Tensor> state() const override { return {}; }

 private:
  at::Tensor values_, grads_;
  std::vector<UpdateRange> ranges_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerOptions& options, at::Tensor values, at::Tensor grads,
                                         std::vector<UpdateRange> ranges) {
  if (options.name == "sgd")
    return std::make_unique<SgdOptimizer>(std::move(values), std::move(grads), std::move(ranges));
  TRIREME_CHECK(options.name == "adamw", "optimizer {}", options.name);
  return std::make_unique<AdamWOptimizer>(options, std::move(values), std::move(grads), std::move(ranges));
}

double GlobalGradNorm(const at::Tensor& grads, const std::vector<UpdateRange>& ranges, Communicator& tp) {
  at::Tensor sum = at::empty({1}, at::kDouble);
  double local = 0;
  for (const UpdateRange& range : ranges) {
    if (range.counts) local += kernels::SumOfSquares(grads, range.begin, range.end - range.begin);
  }
  *sum.mutable_data_ptr<double>() = local;
  tp.AllReduce(sum)->Wait();
  return std::sqrt(*sum.const_data_ptr<double>());
}

}  // namespace trireme
