#include <ATen/Parallel.h>

#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/loops.h"

namespace trireme::kernels {

void RopeTables(int64_t seq, int64_t head_dim, double theta, const at::Tensor& cos, const at::Tensor& sin) {
  const int64_t half = head_dim / 2;
  ForFloatType(cos, "RopeTables", [&](auto zero) {
    using T = decltype(zero);
    for (int64_t t = 0; t < seq; ++t) {
      for (int64_t i = 0; i < half; ++i) {
        const double angle =
            static_cast<double>(t) * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
        cos.mutable_data_ptr<T>()[t * half + i] = static_cast<T>(std::cos(angle));
        sin.mutable_data_ptr<T>()[t * half + i] = static_cast<T>(std::sin(angle));
      }
    }
  });
}

void Rope(const at::Tensor& x, int64_t heads, int64_t head_dim, int64_t seq, const at::Tensor& cos,
          const at::Tensor& sin, bool inverse) {
  const int64_t half = head_dim / 2, stride = x.stride(0);
  ForFloatType(x, "Rope", [&](auto zero) {
    using T = decltype(zero);
    T* data = x.mutable_data_ptr<T>();
    const Loops<T>& loops = BestLoops<T>();
    const T sign = inverse ? T{-1} : T{1};
    at::parallel_for(0, x.size(0), 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T *c = cos.const_data_ptr<T>() + t % seq * half, *s = sin.const_data_ptr<T>() + t % seq * half;
        for (int64_t h = 0; h < heads; ++h) {
          T* low = data + t * stride + h * head_dim;
          loops.rotate(low, low + half, c, s, sign, half);
        }
      }
    });
  });
}

}  // namespace trireme::kernels
