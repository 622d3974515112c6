#pragma once
// A sum that the compiler can vectorise without being allowed to reorder it: element i goes to lane i mod 16, lanes are
// joined in a fixed tree. The result depends on n and the elements alone, and its rounding error grows with n / 16.

#include <array>
#include <cstdint>

namespace trireme::kernels {

// term(0) + ... + term(n - 1), summed in T.
template <class T, class Term>
T LaneSum(int64_t n, Term term) {
  constexpr int64_t kLanes = 16;
  std::array<T, kLanes> lanes{};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int64_t lane = 0; lane < kLanes; ++lane) lanes[static_cast<size_t>(lane)] += term(i + lane);
  }
  for (int64_t lane = 0; i + lane < n; ++lane) lanes[static_cast<size_t>(lane)] += term(i + lane);
  for (size_t half = kLanes / 2; half > 0; half /= 2) {
    for (size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace trireme::kernels
