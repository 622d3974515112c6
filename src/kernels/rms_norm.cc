#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/lane_sum.h"

namespace trireme::kernels {

void RmsNormForward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                    const at::Tensor& inverse_rms) {
  const int64_t rows = x.size(0), width = x.size(1);
  ForFloatType(x, "RmsNormForward", [&](auto zero) {
    using T = decltype(zero);
    const T *in = x.const_data_ptr<T>(), *w = weight.const_data_ptr<T>();
    T *out = y.mutable_data_ptr<T>(), *inverse = inverse_rms.mutable_data_ptr<T>();
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* row = in + t * width;
        const T squares = LaneSum<T>(width, [row](int64_t d) { return row[d] * row[d]; });
        const T scale = T{1} / std::sqrt(squares / static_cast<T>(width) + static_cast<T>(eps));
        inverse[t] = scale;
        for (int64_t d = 0; d < width; ++d) out[t * width + d] = row[d] * scale * w[d];
      }
    });
  });
}

// y = x r w with r = (mean(x^2) + eps)^(-1/2): dx = r (dy w) - x r^3 mean(dy w x).
void RmsNormBackwardInput(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& inverse_rms, const at::Tensor& dx) {
  const int64_t rows = x.size(0), width = x.size(1);
  ForFloatType(x, "RmsNormBackwardInput", [&](auto zero) {
    using T = decltype(zero);
    const T *in = x.const_data_ptr<T>(), *w = weight.const_data_ptr<T>(), *g = dy.const_data_ptr<T>(),
            *inverse = inverse_rms.const_data_ptr<T>();
    T* out = dx.mutable_data_ptr<T>();
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t o = t * width;
        const T dot = LaneSum<T>(width, [=](int64_t d) { return g[o + d] * w[d] * in[o + d]; });
        const T r = inverse[t], k = r * r * r * dot / static_cast<T>(width);
        for (int64_t d = 0; d < width; ++d) out[o + d] += r * g[o + d] * w[d] - k * in[o + d];
      }
    });
  });
}

void RmsNormBackwardWeight(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& inverse_rms, double beta,
                           const at::Tensor& dweight) {
  // Blocks of a fixed number of rows are summed apart and joined in order: the bits do not depend on the threads.
  constexpr int64_t kBlock = 64;
  const int64_t rows = x.size(0), width = x.size(1), blocks = (rows + kBlock - 1) / kBlock;
  ForFloatType(x, "RmsNormBackwardWeight", [&](auto zero) {
    using T = decltype(zero);
    const T *in = x.const_data_ptr<T>(), *g = dy.const_data_ptr<T>(), *inverse = inverse_rms.const_data_ptr<T>();
    std::vector<T> partial(static_cast<size_t>(blocks * width), T{0});
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        T* sum = partial.data() + b * width;
        for (int64_t t = b * kBlock; t < std::min(rows, (b + 1) * kBlock); ++t) {
          for (int64_t d = 0; d < width; ++d) sum[d] += g[t * width + d] * in[t * width + d] * inverse[t];
        }
      }
    });
    T* out = dweight.mutable_data_ptr<T>();
    for (int64_t d = 0; d < width; ++d) out[d] = beta == 0 ? T{0} : out[d];
    for (int64_t b = 0; b < blocks; ++b) {
      for (int64_t d = 0; d < width; ++d) out[d] += partial[static_cast<size_t>(b * width + d)];
    }
  });
}

}  // namespace trireme::kernels
