#include <ATen/Parallel.h>

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"

namespace trireme::kernels {

void SwiGluForward(const at::Tensor& gate_up, const at::Tensor& y) {
  const int64_t width = y.size(1);
  ForFloatType(y, "SwiGluForward", [&](auto zero) {
    using T = decltype(zero);
    at::parallel_for(0, y.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T *gate = gate_up.const_data_ptr<T>() + t * 2 * width, *up = gate + width;
        T* out = y.mutable_data_ptr<T>() + t * width;
        for (int64_t f = 0; f < width; ++f) out[f] = gate[f] / (T{1} + std::exp(-gate[f])) * up[f];
      }
    });
  });
}

void SwiGluBackward(const at::Tensor& dy, const at::Tensor& gate_up, const at::Tensor& dgate_up) {
  const int64_t width = dy.size(1);
  ForFloatType(dy, "SwiGluBackward", [&](auto zero) {
    using T = decltype(zero);
    at::parallel_for(0, dy.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T *gate = gate_up.const_data_ptr<T>() + t * 2 * width, *up = gate + width,
                *g = dy.const_data_ptr<T>() + t * width;
        T *dgate = dgate_up.mutable_data_ptr<T>() + t * 2 * width, *dup = dgate + width;
        for (int64_t f = 0; f < width; ++f) {
          const T sigmoid = T{1} / (T{1} + std::exp(-gate[f])), silu = gate[f] * sigmoid;
          dup[f] = g[f] * silu;
          dgate[f] = g[f] * up[f] * (sigmoid + silu * (T{1} - sigmoid));
        }
      }
    });
  });
}

}  // namespace trireme::kernels
