#include <algorithm>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"

namespace trireme::kernels {

void EmbeddingForward(const at::Tensor& ids, const at::Tensor& table, int64_t first_row, const at::Tensor& y) {
  const int64_t rows = table.size(0), width = table.size(1);
  ForFloatType(table, "EmbeddingForward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t* id = ids.const_data_ptr<int64_t>();
    for (int64_t t = 0; t < ids.numel(); ++t) {
      const int64_t row = id[t] - first_row;
      T* out = y.mutable_data_ptr<T>() + t * width;
      if (row >= 0 && row < rows) {
        std::copy_n(table.const_data_ptr<T>() + row * width, width, out);
      } else {
        std::fill_n(out, width, T{0});
      }
    }
  });
}

void EmbeddingBackward(const at::Tensor& ids, const at::Tensor& dy, int64_t first_row, double beta,
                       const at::Tensor& dtable) {
  const int64_t rows = dtable.size(0), width = dtable.size(1);
  if (beta == 0) dtable.zero_();
  ForFloatType(dtable, "EmbeddingBackward", [&](auto zero) {
    using T = decltype(zero);
    const int64_t* id = ids.const_data_ptr<int64_t>();
    for (int64_t t = 0; t < ids.numel(); ++t) {
      const int64_t row = id[t] - first_row;
      if (row < 0 || row >= rows) continue;
      const T* in = dy.const_data_ptr<T>() + t * width;
      T* out = dtable.mutable_data_ptr<T>() + row * width;
      for (int64_t d = 0; d < width; ++d) out[d] += in[d];
    }
  });
}

}  // namespace trireme::kernels
