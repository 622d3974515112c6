#pragma once
// Calls a generic lambda with a value of the tensor's element type: fp32 or fp64.

#include <ATen/core/Tensor.h>

#include "base/error.h"

namespace trireme::kernels {

template <class Body>
void ForFloatType(const at::Tensor& tensor, const char* kernel, Body body) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      body(float{});
      break;
    case at::kDouble:
      body(double{});
      break;
    default:
      Fail("{}: expected fp32 or fp64, got {}", kernel, c10::toString(tensor.scalar_type()));
  }
}

}  // namespace trireme::kernels
