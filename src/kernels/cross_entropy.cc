#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/lane_sum.h"

namespace trireme::kernels {
namespace {
constexpr int64_t kIgnored = -100;
}

void CrossEntropyMax(const at::Tensor& logits, int64_t valid, const at::Tensor& max) {
  const int64_t width = logits.size(1);
  ForFloatType(logits, "CrossEntropyMax", [&](auto zero) {
    using T = decltype(zero);
    at::parallel_for(0, logits.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const T* row = logits.const_data_ptr<T>() + t * width;
        T best = -std::numeric_limits<T>::infinity();
        for (int64_t v = 0; v < valid; ++v) best = std::max(best, row[v]);
        max.mutable_data_ptr<T>()[t] = best;
      }
    });
  });
}

void CrossEntropyExp(const at::Tensor& logits, int64_t valid, int64_t first_row, const at::Tensor& labels,
                     const at::Tensor& max, const at::Tensor& sum, const at::Tensor& target) {
  const int64_t width = logits.size(1);
  ForFloatType(logits, "CrossEntropyExp", [&](auto zero) {
    using T = decltype(zero);
    at::parallel_for(0, logits.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        T* row = logits.mutable_data_ptr<T>() + t * width;
        const T best = max.const_data_ptr<T>()[t];
        const int64_t label = labels.const_data_ptr<int64_t>()[t] - first_row;
        target.mutable_data_ptr<T>()[t] = label >= 0 && label < valid ? row[label] - best : T{0};
        for (int64_t v = 0; v < valid; ++v) row[v] = std::exp(row[v] - best);
        std::fill(row + valid, row + width, T{0});
        sum.mutable_data_ptr<T>()[t] = LaneSum<T>(valid, [row](int64_t v) { return row[v]; });
      }
    });
  });
}

double CrossEntropyGrad(const at::Tensor& exp, int64_t valid, int64_t first_row, const at::Tensor& labels,
                        const at::Tensor& sum, const at::Tensor& target, double scale) {
  const int64_t width = exp.size(1), rows = exp.size(0);
  double loss = 0;
  ForFloatType(exp, "CrossEntropyGrad", [&](auto zero) {
    using T = decltype(zero);
    const int64_t* label = labels.const_data_ptr<int64_t>();
    const T *total = sum.const_data_ptr<T>(), *logit = target.const_data_ptr<T>();
    at::parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        T* row = exp.mutable_data_ptr<T>() + t * width;
        if (label[t] == kIgnored) {
          std::fill_n(row, width, T{0});
          continue;
        }
        const T k = static_cast<T>(scale) / total[t];
        for (int64_t v = 0; v < valid; ++v) row[v] *= k;
        const int64_t mine = label[t] - first_row;
        if (mine >= 0 && mine < valid) row[mine] -= static_cast<T>(scale);
      }
    });
    for (int64_t t = 0; t < rows; ++t) {
      if (label[t] != kIgnored) loss += std::log(static_cast<double>(total[t])) - static_cast<double>(logit[t]);
    }
  });
  return loss;
}

}  // namespace trireme::kernels
