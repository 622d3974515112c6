#include <ATen/Parallel.h>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/loops.h"

namespace trireme::kernels {

void SwiGluForward(const at::Tensor& gate_up, const at::Tensor& y) {
  const int64_t width = y.size(1);
  ForFloatType(y, "SwiGluForward", [&](auto zero) {
    using T = decltype(zero);
    const Loops<T>& loops = BestLoops<T>();
    at::parallel_for(0, y.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T *gate = gate_up.const_data_ptr<T>() + t * 2 * width, *up = gate + width;
        loops.swiglu(gate, up, y.mutable_data_ptr<T>() + t * width, width);
      }
    });
  });
}

void SwiGluBackward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& dgate_up) {
  const int64_t width = dy.size(1);
  ForFloatType(dy, "SwiGluBackward", [&](auto zero) {
    using T = decltype(zero);
    const Loops<T>& loops = BestLoops<T>();
    at::parallel_for(0, dy.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T *gate = gate_up.const_data_ptr<T>() + t * 2 * width, *up = gate + width;
        T* dgate = dgate_up.mutable_data_ptr<T>() + t * 2 * width;
        loops.swiglu_backward(dy.const_data_ptr<T>() + t * width, gate, up, dgate, dgate + width, width);
      }
    });
  });
}

}  // namespace trireme::kernels
