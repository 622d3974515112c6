// Causal attention by head and block of query rows: the scores of a block are one small matrix that stays in the cache,
// as wide as the keys that its last row may see. Backward recomputes them from log_sum_exp (Dao et al. 2022,
// FlashAttention, section 3.1), so that memory grows linearly with the sequence. Query, key and value are read where
// the fused product left them; nothing is copied.
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "kernels/dispatch.h"
#include "kernels/gemm.h"
#include "kernels/kernels.h"
#include "kernels/loops.h"

namespace trireme::kernels {
namespace {

constexpr int64_t kRows = 32;  // query rows of a block

// One head's scores over one block of query rows.
template <class T>
struct ScoreBlock {
  int64_t first, rows,
      keys;  // query rows first .. first + rows - 1 see keys 0 .. keys - 1, row r first + r + 1 of them
  int64_t Seen(int64_t r) const { return first + r + 1; }

  ScoreBlock(int64_t first, int64_t seq) : first(first), rows(std::min(kRows, seq - first)), keys(first + rows) {}

  // scores[rows, keys] = q k^T / sqrt(C)
  void Scores(const AttentionShape& shape, int64_t stride, const T* q, const T* k, T* scores) const {
    const T scale = T{1} / std::sqrt(static_cast<T>(shape.head_dim));
    Gemm<T>(rows, keys, shape.head_dim, scale, {q + first * stride, stride}, {k, stride, true}, T{0}, {scores, keys});
  }
};

template <class T>
void ForwardHead(const AttentionShape& shape, int64_t stride, const T* q, const T* k, const T* v, T* out,
                 int64_t out_stride, T* log_sum_exp, T* scores) {
  const Loops<T>& loops = BestLoops<T>();
  for (int64_t first = 0; first < shape.seq; first += kRows) {
    const ScoreBlock<T> block(first, shape.seq);
    block.Scores(shape, stride, q, k, scores);
    for (int64_t r = 0; r < block.rows; ++r) {
      T* row = scores + r * block.keys;
      const int64_t seen = block.Seen(r);
      const T max = loops.max(row, seen), sum = loops.exp_sum(row, max, seen);
      loops.multiply(row, T{1} / sum, seen);
      std::fill(row + seen, row + block.keys, T{0});
      log_sum_exp[first + r] = max + std::log(sum);
    }
    Gemm<T>(block.rows, shape.head_dim, block.keys, T{1}, {scores, block.keys}, {v, stride}, T{0},
            {out + first * out_stride, out_stride});
  }
}

// beta: 0 where this head is the first to give to dk and dv.
template <class T>
void BackwardHead(const AttentionShape& shape, int64_t stride, const T* q, const T* k, const T* v, const T* out,
                  const T* dout, int64_t out_stride, const T* log_sum_exp, T beta, T* dq, T* dk, T* dv, T* scratch) {
  const Loops<T>& loops = BestLoops<T>();
  const int64_t width = shape.head_dim, blocks = (shape.seq + kRows - 1) / kRows;
  const T scale = T{1} / std::sqrt(static_cast<T>(width));
  T *p = scratch, *dp = scratch + kRows * shape.seq;
  // From the last block on, the first product writes all rows of dk and dv.
  for (int64_t b = blocks - 1; b >= 0; --b, beta = T{1}) {
    const ScoreBlock<T> block(b * kRows, shape.seq);
    const T *block_out = out + block.first * out_stride, *block_dout = dout + block.first * out_stride;
    block.Scores(shape, stride, q, k, p);
    Gemm<T>(block.rows, block.keys, width, T{1}, {block_dout, out_stride}, {v, stride, true}, T{0}, {dp, block.keys});
    for (int64_t r = 0; r < block.rows; ++r) {
      T *p_row = p + r * block.keys, *dp_row = dp + r * block.keys;
      const int64_t seen = block.Seen(r);
      loops.exp_sum(p_row, log_sum_exp[block.first + r], seen);
      const T mean = loops.dot(block_out + r * out_stride, block_dout + r * out_stride, width);
      loops.softmax_backward(p_row, mean, scale, dp_row, seen);  // dp becomes the gradient of q k^T
      std::fill(p_row + seen, p_row + block.keys, T{0});
      std::fill(dp_row + seen, dp_row + block.keys, T{0});
    }
    Gemm<T>(block.keys, width, block.rows, T{1}, {p, block.keys, true}, {block_dout, out_stride}, beta, {dv, stride});
    Gemm<T>(block.keys, width, block.rows, T{1}, {dp, block.keys, true}, {q + block.first * stride, stride}, beta,
            {dk, stride});
    Gemm<T>(block.rows, width, block.keys, T{1}, {dp, block.keys}, {k, stride}, T{0},
            {dq + block.first * stride, stride});
  }
}

}  // namespace

int64_t AttentionScratch(const AttentionShape& shape) { return at::get_num_threads() * 2 * kRows * shape.seq; }

void CausalAttentionForward(const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& out,
                            const at::Tensor& log_sum_exp, const at::Tensor& scratch) {
  const int64_t stride = qkv.size(1), out_stride = out.size(1), seq = shape.seq, width = shape.head_dim;
  ForFloatType(qkv, "CausalAttentionForward", [&](auto zero) {
    using T = decltype(zero);
    const T* in = qkv.const_data_ptr<T>();
    T *to = out.mutable_data_ptr<T>(), *lse = log_sum_exp.mutable_data_ptr<T>();
    at::parallel_for(0, qkv.size(0) / seq * shape.heads, 1, [&](int64_t begin, int64_t end) {
      T* scores = scratch.mutable_data_ptr<T>() + at::get_thread_num() * 2 * kRows * seq;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t batch = i / shape.heads, head = i % shape.heads;
        const T *rows = in + batch * seq * stride, *k = rows + (shape.heads + head / shape.group()) * width;
        ForwardHead<T>(shape, stride, rows + head * width, k, k + shape.kv_heads * width,
                       to + batch * seq * out_stride + head * width, out_stride, lse + i * seq, scores);
      }
    });
  });
}

void CausalAttentionBackward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const at::Tensor& log_sum_exp, const AttentionShape& shape, const at::Tensor& dqkv,
                             const at::Tensor& scratch) {
  const int64_t stride = qkv.size(1), out_stride = out.size(1), seq = shape.seq, width = shape.head_dim;
  ForFloatType(qkv, "CausalAttentionBackward", [&](auto zero) {
    using T = decltype(zero);
    const T *in = qkv.const_data_ptr<T>(), *o = out.const_data_ptr<T>(), *g = dout.const_data_ptr<T>(),
            *lse = log_sum_exp.const_data_ptr<T>();
    T* din = dqkv.mutable_data_ptr<T>();
    // One key head is one task: its query heads add to the same dk and dv, in order.
    at::parallel_for(0, qkv.size(0) / seq * shape.kv_heads, 1, [&](int64_t begin, int64_t end) {
      T* mine = scratch.mutable_data_ptr<T>() + at::get_thread_num() * 2 * kRows * seq;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t batch = i / shape.kv_heads, kv_head = i % shape.kv_heads, rows = batch * seq * stride,
                      k = rows + (shape.heads + kv_head) * width, v = k + shape.kv_heads * width;
        for (int64_t member = 0; member < shape.group(); ++member) {
          const int64_t head = kv_head * shape.group() + member, at_out = batch * seq * out_stride + head * width;
          BackwardHead<T>(shape, stride, in + rows + head * width, in + k, in + v, o + at_out, g + at_out, out_stride,
                          lse + (batch * shape.heads + head) * seq, member == 0 ? T{0} : T{1},
                          din + rows + head * width, din + k, din + v, mine);
        }
      }
    });
  });
}

}  // namespace trireme::kernels
