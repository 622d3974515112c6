#pragma once
// RMSNorm with its weight; see kernels/kernels.h.

#include "kernels/arena.h"
#include "kernels/kernels.h"
#include "kernels/param.h"

namespace trireme {

class RmsNorm {
 public:
  struct Kept {
    at::Tensor x, y, inverse_rms, dy;
  };
  RmsNorm(Param weight, double eps) : weight_(std::move(weight)), eps_(eps) {}

  at::Tensor Forward(const at::Tensor& x, Kept& kept, Arena& keep) const {
    kept.x = x;
    kept.y = keep.Allocate(x.sizes(), x.scalar_type());
    kept.inverse_rms = keep.Allocate({x.size(0)}, x.scalar_type());
    kernels::RmsNormForward(x, weight_.value, eps_, kept.y, kept.inverse_rms);
    return kept.y;
  }
  // dx += the norm's input gradient.
  void BackwardInput(const at::Tensor& dy, Kept& kept, const at::Tensor& dx) const {
    kept.dy = dy;
    kernels::RmsNormBackwardInput(dy, kept.x, weight_.value, kept.inverse_rms, dx);
  }
  void BackwardWeight(const Kept& kept) const {
    kernels::RmsNormBackwardWeight(kept.dy, kept.x, kept.inverse_rms, weight_.TakeGradBeta(), weight_.grad);
  }

 private:
  Param weight_;
  double eps_;
};

}  // namespace trireme
