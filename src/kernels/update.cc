#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/lane_sum.h"

namespace trireme::kernels {

void AdamW(const AdamWStep& h, int64_t first, int64_t n, const at::Tensor& value, const at::Tensor& grad,
           const at::Tensor& first_moment, const at::Tensor& second_moment) {
  const double correction1 = 1 - std::pow(h.beta1, static_cast<double>(h.step)),
               correction2 = 1 - std::pow(h.beta2, static_cast<double>(h.step));
  ForFloatType(value, "AdamW", [&](auto zero) {
    using T = decltype(zero);
    T *w = value.mutable_data_ptr<T>(), *m = first_moment.mutable_data_ptr<T>(),
      *v = second_moment.mutable_data_ptr<T>();
    const T* g = grad.const_data_ptr<T>();
    // 1 - beta is taken in fp64: in fp32, 1 - 0.999 would be off by 4.7e-5 of itself.
    const T b1 = static_cast<T>(h.beta1), b2 = static_cast<T>(h.beta2), new1 = static_cast<T>(1 - h.beta1),
            new2 = static_cast<T>(1 - h.beta2), scale = static_cast<T>(h.grad_scale), eps = static_cast<T>(h.eps);
    const T keep = static_cast<T>(1 - h.lr * h.weight_decay), rate = static_cast<T>(h.lr / correction1),
            root = static_cast<T>(1 / std::sqrt(correction2));
    at::parallel_for(first, first + n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const T x = g[i] * scale;
        m[i] = b1 * m[i] + new1 * x;
        v[i] = b2 * v[i] + new2 * x * x;
        w[i] = w[i] * keep - rate * m[i] / (std::sqrt(v[i]) * root + eps);
      }
    });
  });
}

void Sgd(double lr, double weight_decay, double grad_scale, int64_t first, int64_t n, const at::Tensor& value,
         const at::Tensor& grad) {
  ForFloatType(value, "Sgd", [&](auto zero) {
    using T = decltype(zero);
    T* w = value.mutable_data_ptr<T>();
    const T* g = grad.const_data_ptr<T>();
    at::parallel_for(first, first + n, 4096, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        w[i] -= static_cast<T>(lr) * (static_cast<T>(grad_scale) * g[i] + static_cast<T>(weight_decay) * w[i]);
      }
    });
  });
}

double SumOfSquares(const at::Tensor& flat, int64_t first, int64_t n) {
  constexpr int64_t kBlock = 4096;  // fixed blocks joined in order: the bits do not depend on the threads
  const int64_t blocks = (n + kBlock - 1) / kBlock;
  std::vector<double> partial(static_cast<size_t>(blocks), 0.0);
  ForFloatType(flat, "SumOfSquares", [&](auto zero) {
    using T = decltype(zero);
    const T* x = flat.const_data_ptr<T>() + first;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        const T* block = x + b * kBlock;
        partial[static_cast<size_t>(b)] = LaneSum<double>(std::min(kBlock, n - b * kBlock), [block](int64_t i) {
          return static_cast<double>(block[i]) * static_cast<double>(block[i]);
        });
      }
    });
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

}  // namespace trireme::kernels
