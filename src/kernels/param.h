#pragma once
// A parameter as layers see it: views of flat buffers that someone else owns.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace trireme {

struct Param {
  at::Tensor value;              // local shape, contiguous
  at::Tensor grad;               // same shape; type: what gradients accumulate in
  bool* grad_written = nullptr;  // shared by all layers that use the parameter (tied weights)

  // For a backward about to write the gradient: 0 for the first of a step (overwrite), 1 afterwards (add).
  double TakeGradBeta() const {
    const double beta = *grad_written ? 1.0 : 0.0;
    *grad_written = true;
    return beta;
  }
};

// Where layers get their parameters by name. Several names that are adjacent in the parameter table (q|k|v, gate|up)
// give one fused view, joined along dimension 0. The same list always shares one grad_written flag, and a parameter is
// only ever taken in one such list.
class ParamSource {
 public:
  virtual ~ParamSource() = default;
  virtual Param Get(const std::vector<std::string>& names) = 0;
};

}  // namespace trireme
