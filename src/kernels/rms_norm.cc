#include <ATen/Parallel.h>

#include <algorithm>
#include <vector>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/loops.h"

namespace trireme::kernels {

void RmsNormForward(const at::Tensor& x, const at::Tensor& weight, double eps, const at::Tensor& y,
                    const at::Tensor& inverse_rms) {
  const int64_t rows = x.size(0), width = x.size(1);
  ForFloatType(x, "RmsNormForward", [&](auto zero) {
    using T = decltype(zero);
    const T *in = x.const_data_ptr<T>(), *w = weight.const_data_ptr<T>();
    const Loops<T>& loops = BestLoops<T>();
    T *out = y.mutable_data_ptr<T>(), *inverse = inverse_rms.mutable_data_ptr<T>();
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        inverse[t] = loops.rms_norm(in + t * width, w, static_cast<T>(eps), out + t * width, width);
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
    const Loops<T>& loops = BestLoops<T>();
    T* out = dx.mutable_data_ptr<T>();
    at::parallel_for(0, rows, 16, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t o = t * width;
        loops.rms_norm_backward(g + o, in + o, w, inverse[t], out + o, width);
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
    const Loops<T>& loops = BestLoops<T>();
    std::vector<T> partial(static_cast<size_t>(blocks * width), T{0});
    at::parallel_for(0, blocks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t b = begin; b < end; ++b) {
        T* sum = partial.data() + b * width;
        for (int64_t t = b * kBlock; t < std::min(rows, (b + 1) * kBlock); ++t) {
          loops.add_product(g + t * width, in + t * width, inverse[t], sum, width);
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
