#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/kernels.h"
#include "kernels/loops.h"

namespace trireme::kernels {
namespace {
constexpr int64_t kIgnored = -100;
}

void CrossEntropyMax(const at::Tensor& logits, int64_t valid, const at::Tensor& max) {
  const int64_t width = logits.size(1);
  ForFloatType(logits, "CrossEntropyMax", [&](auto zero) {
    using T = decltype(zero);
    const Loops<T>& loops = BestLoops<T>();
    at::parallel_for(0, logits.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        max.mutable_data_ptr<T>()[t] = loops.max(logits.const_data_ptr<T>() + t * width, valid);
      }
    });
  });
}

void CrossEntropyExp(const at::Tensor& logits, int64_t valid, int64_t first_row, const at::Tensor& labels,
                     const at::Tensor& max, const at::Tensor& sum, const at::Tensor& target) {
  const int64_t width = logits.size(1);
  ForFloatType(logits, "CrossEntropyExp", [&](auto zero) {
    using T = decltype(zero);
    const Loops<T>& loops = BestLoops<T>();
    at::parallel_for(0, logits.size(0), 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        T* row = logits.mutable_data_ptr<T>() + t * width;
        const T best = max.const_data_ptr<T>()[t];
        const int64_t label = labels.const_data_ptr<int64_t>()[t] - first_row;
        target.mutable_data_ptr<T>()[t] = label >= 0 && label < valid ? row[label] - best : T{0};
        std::fill(row + valid, row + width, T{0});
        sum.mutable_data_ptr<T>()[t] = loops.exp_sum(row, best, valid);
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
    const Loops<T>& loops = BestLoops<T>();
    const int64_t* label = labels.const_data_ptr<int64_t>();
    const T *total = sum.const_data_ptr<T>(), *logit = target.const_data_ptr<T>();
    at::parallel_for(0, rows, 8, [&](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        T* row = exp.mutable_data_ptr<T>() + t * width;
        if (label[t] == kIgnored) {
          std::fill_n(row, width, T{0});
          continue;
        }
        loops.multiply(row, static_cast<T>(scale) / total[t], valid);
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
