#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/loops.h"

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
    const typename Loops<T>::AdamW c{
        .keep = static_cast<T>(1 - h.lr * h.weight_decay),
        .rate = static_cast<T>(h.lr / correction1),
        .root = static_cast<T>(1 / std::sqrt(correction2)),
        .b1 = static_cast<T>(h.beta1),
        .b2 = static_cast<T>(h.beta2),
        .new1 = static_cast<T>(1 - h.beta1),
        .new2 = static_cast<T>(1 - h.beta2),
        .grad_scale = static_cast<T>(h.grad_scale),
        .eps = static_cast<T>(h.eps),
    };
    const Loops<T>& loops = BestLoops<T>();
    at::parallel_for(first, first + n, 4096, [&](int64_t begin, int64_t end) {
      loops.adamw(c, w + begin, g + begin, m + begin, v + begin, end - begin);
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
    const Loops<T>& loops = BestLoops<T>();
    const T* x = flat.const_data_ptr<T>() + first;
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        partial[static_cast<size_t>(b)] = loops.sum_of_squares(x + b * kBlock, std::min(kBlock, n - b * kBlock));
      }
    });
  });
  double total = 0;
  for (const double sum : partial) total += sum;
  return total;
}

}  // namespace trireme::kernels
