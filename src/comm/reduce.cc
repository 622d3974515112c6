#include "comm/reduce.h"

#include <algorithm>
#include <array>

namespace trireme::internal {
namespace {

constexpr int64_t kBlock = 1024;  // summed in one go in the first-level cache

template <class Acc>
void Combine(Acc& a, Acc b, ReduceOp op) {
  // A NaN wins, so that it is seen whichever rank has it.
  if (op == ReduceOp::kSum) a = static_cast<Acc>(a + b);
  if (op == ReduceOp::kMax) a = b > a || b != b ? b : a;
  if (op == ReduceOp::kMin) a = b < a || b != b ? b : a;
}

template <class T, class Acc>
void ReduceAs(ReduceOp op, std::span<const void* const> ins, std::span<void* const> outs, int64_t count) {
  std::array<Acc, kBlock> acc;
  for (int64_t at = 0; at < count; at += kBlock) {
    const int64_t n = std::min(kBlock, count - at);
    for (size_t r = 0; r < ins.size(); ++r) {
      const T* in = static_cast<const T*>(ins[r]) + at;
      if (r == 0) {
        for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(in[i]);
      } else if (op == ReduceOp::kSum) {
        for (int64_t i = 0; i < n; ++i) acc[i] = static_cast<Acc>(acc[i] + static_cast<Acc>(in[i]));
      } else {
        for (int64_t i = 0; i < n; ++i) Combine(acc[i], static_cast<Acc>(in[i]), op);
      }
    }
    for (void* to : outs) {
      T* out = static_cast<T*>(to) + at;
      for (int64_t i = 0; i < n; ++i) out[i] = static_cast<T>(acc[i]);
    }
  }
}

}  // namespace

bool CanReduce(at::ScalarType type) {
  constexpr std::array kTypes = {at::kFloat, at::kDouble, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kByte};
  return std::find(kTypes.begin(), kTypes.end(), type) != kTypes.end();
}

void Reduce(at::ScalarType type, ReduceOp op, std::span<const void* const> ins, std::span<void* const> outs,
            int64_t n) {
  switch (type) {
    case at::kFloat:
      return ReduceAs<float, float>(op, ins, outs, n);
    case at::kDouble:
      return ReduceAs<double, double>(op, ins, outs, n);
    case at::kBFloat16:
      return ReduceAs<c10::BFloat16, float>(op, ins, outs, n);
    case at::kHalf:
      return ReduceAs<c10::Half, float>(op, ins, outs, n);
    case at::kLong:
      return ReduceAs<int64_t, int64_t>(op, ins, outs, n);
    case at::kInt:
      return ReduceAs<int32_t, int32_t>(op, ins, outs, n);
    default:
      return ReduceAs<uint8_t, uint8_t>(op, ins, outs, n);
  }
}

}  // namespace trireme::internal
