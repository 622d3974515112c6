#pragma once
// The innermost loops of the kernels, over one row or range of plain memory. They are compiled once for each
// instruction set (loops_*.cc) from one source (loops.inc), and chosen when the program runs, so that one binary is
// fast on every x86-64 machine. Every sum has 16 lanes joined in a fixed tree, whatever the instruction set is.
//
// Pointers may be unaligned; n may be 0. Outputs may not overlap inputs unless said.

#include <cstdint>

namespace trireme::kernels {

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

// The widest that this processor has.
InstructionSet BestInstructionSet();

// T is float or double.
template <class T>
struct Loops {
  // y[i] = silu(gate[i]) * up[i]
  void (*swiglu)(const T* gate, const T* up, T* y, int64_t n);
  // dgate, dup: the gradients of the above for dy.
  void (*swiglu_backward)(const T* dy, const T* gate, const T* up, T* dgate, T* dup, int64_t n);

  // y[i] = x[i] * scale * weight[i]; returns scale = 1 / sqrt(mean(x^2) + eps).
  T (*rms_norm)(const T* x, const T* weight, T eps, T* y, int64_t n);
  // dx[i] += inverse_rms dy[i] weight[i] - x[i] inverse_rms^3 mean(dy weight x)
  void (*rms_norm_backward)(const T* dy, const T* x, const T* weight, T inverse_rms, T* dx, int64_t n);
  // sum[i] += a[i] * b[i] * scale
  void (*add_product)(const T* a, const T* b, T scale, T* sum, int64_t n);

  // (low, high) rotated by the angles of cos and sin; sin_sign -1 rotates back. In place.
  void (*rotate)(T* low, T* high, const T* cos, const T* sin, T sin_sign, int64_t n);

  T (*max)(const T* x, int64_t n);  // -infinity for n = 0
  // x[i] = exp(x[i] - max) in place; returns their sum.
  T (*exp_sum)(T* x, T max, int64_t n);
  void (*multiply)(T* x, T factor, int64_t n);
  T (*dot)(const T* a, const T* b, int64_t n);
  // dp[i] = p[i] * (dp[i] - mean) * scale in place: from the gradient of p = softmax(x) to that of x / scale.
  void (*softmax_backward)(const T* p, T mean, T scale, T* dp, int64_t n);

  struct AdamW {
    T keep, rate, root, b1, b2, new1, new2, grad_scale,
        eps;  // keep = 1 - lr decay; rate, root: lr and sqrt(v) corrected for bias; new = 1 - b
  };
  void (*adamw)(const AdamW& h, T* value, const T* grad, T* first_moment, T* second_moment, int64_t n);
  double (*sum_of_squares)(const T* x, int64_t n);  // in fp64
};

// One instruction set's loops; defined by loops_*.cc.
struct LoopTables {
  Loops<float> fp32;
  Loops<double> fp64;
};

// The set must be one that this processor has: see BestInstructionSet.
template <class T>
const Loops<T>& LoopsFor(InstructionSet set);
template <class T>
const Loops<T>& BestLoops() {
  return LoopsFor<T>(BestInstructionSet());
}

}  // namespace trireme::kernels
