#pragma once
// Updates element ranges of flat buffers. State is flat like the parameters.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "optim/options.h"

namespace trireme {

// A run of elements of the flat buffers with one treatment.
struct UpdateRange {
  int64_t begin = 0, end = 0;
  double weight_decay = 0;
  bool counts = true;  // counted in the global norm by this rank (each logical parameter once over tp)
};

class Optimizer {
 public:
  virtual ~Optimizer() = default;
  // One update of all ranges with gradients multiplied by grad_scale. step counts from 1.
  virtual void Step(int64_t step, double lr, double grad_scale) = 0;
  // Flat state buffers by name ("exp_avg", "exp_avg_sq"), for checkpoints; empty for sgd.
  virtual std::map<std::string, at::Tensor> state() const = 0;
};

// values and grads stay the caller's; state is allocated here (zero).
std::unique_ptr<Optimizer> MakeOptimizer(const OptimizerOptions& options, at::Tensor values, at::Tensor grads,
                                         std::vector<UpdateRange> ranges);

// Learning rate of step 1 .. total (step 0: before the first). Pure. Warm-up is linear from lr/warmup at step 1 to lr
// at step `warmup`; then the schedule runs from there to `total`, reaching min_lr at step `total`.
double LearningRate(const OptimizerOptions& options, int64_t step, int64_t total);

// Euclidean norm of the whole model's gradient: sums of squares in fp64 over the ranges that count, added over `tp`.
// Collective over tp; equal bits on all ranks.
double GlobalGradNorm(const at::Tensor& grads, const std::vector<UpdateRange>& ranges, Communicator& tp);

// Factor for the gradients: min(1, clip / norm); 1 when clip is 0.
double ClipScale(double norm, double clip);

}  // namespace trireme
