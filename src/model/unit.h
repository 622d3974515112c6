#pragma once
// A layer unit of a model, explicit: forward, input gradient, weight gradient. What forward keeps for backward lies in
// Saved, one for each micro-batch in flight; its tensors live in the arena given to Forward.

#include <ATen/core/Tensor.h>

#include <memory>

#include "kernels/arena.h"

namespace trireme {

struct MicroBatch;

struct Saved {
  virtual ~Saved() = default;
};

class Unit {
 public:
  virtual ~Unit() = default;
  // x: [T, D], undefined for the first unit; returns [T, D] in `keep`, undefined for the last unit. `saved` is filled.
  virtual at::Tensor Forward(const at::Tensor& x, const MicroBatch& batch, std::unique_ptr<Saved>& saved, Arena& keep,
                             Arena& scratch) = 0;
  // dy: gradient of Forward's result; returns the gradient of x in `keep`. with_weights also does BackwardWeight, each
  // part as soon as its input gradient is on its way; else `saved` keeps what BackwardWeight needs. The bits are the
  // same.
  virtual at::Tensor Backward(const at::Tensor& dy, Saved& saved, bool with_weights, Arena& keep, Arena& scratch) = 0;
  virtual void BackwardWeight(Saved& saved) = 0;
};

}  // namespace trireme
