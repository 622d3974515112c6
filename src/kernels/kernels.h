#pragma once
// Fused CPU kernels for fp32 and fp64 tensors. All tensors are contiguous unless said; outputs are given by the caller
// and overwritten unless said. T = tokens (batch x sequence), D = hidden, H = query heads, K = key/value heads, C =
// head width, F = MLP width, V = vocabulary rows. Loops are spread with at::parallel_for over rows; results do not
// depend on the number of threads. Each has a plain reference in kernels/reference.h that tests compare with.

#include <ATen/core/Tensor.h>

namespace trireme::kernels {

// c_MN = a_MK b_NK^T + beta c  (a linear layer's forward; b is stored [out, in]).
void MatmulNT(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c);
// c_MN = a_MK b_KN + beta c    (its input gradient).
void MatmulNN(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c);
// c_MN = a_KM^T b_KN + beta c  (its weight gradient).
void MatmulTN(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c);

// RMSNorm (Zhang & Sennrich 2019): y = x / sqrt(mean(x^2) + eps) * weight. inverse_rms_T is kept for backward.
void RmsNormForward(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps, const at::Tensor& y_TD,
                    const at::Tensor& inverse_rms_T);
// dx += the gradient (the residual's gradient is already there). dy may not alias dx.
void RmsNormBackwardInput(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& weight_D,
                          const at::Tensor& inverse_rms_T, const at::Tensor& dx_TD);
// dweight = sum over tokens of dy * x / rms + beta * dweight, summed in a fixed order whatever the threads.
void RmsNormBackwardWeight(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& inverse_rms_T,
                           double beta, const at::Tensor& dweight_D);

// Rotary embedding (Su et al. 2021), halves rotated as Hugging Face does: in place on the first `heads` heads of width
// C of each row of x (row stride may exceed heads*C: x is [T, row]); token t of a sequence has position t % seq. cos,
// sin: [seq, C/2], from RopeTables. inverse rotates back (the backward).
void RopeTables(int64_t seq, int64_t head_dim, double theta, const at::Tensor& cos, const at::Tensor& sin);
void Rope(const at::Tensor& x, int64_t heads, int64_t head_dim, int64_t seq, const at::Tensor& cos,
          const at::Tensor& sin, bool inverse);

// SwiGLU: gate_up_T2F holds gate in columns 0..F-1 and up in F..2F-1. y_TF = silu(gate) * up.
void SwiGluForward(const at::Tensor& gate_up_T2F, const at::Tensor& y_TF);
void SwiGluBackward(const at::Tensor& dy_TF, const at::Tensor& gate_up_T2F, const at::Tensor& dgate_up_T2F);

// Causal attention with grouped heads. qkv: [B*seq, (H + 2K) * C] (q heads, then k, then v; rotated already);
// out: [B*seq, H*C]; log_sum_exp: [B, H, seq] in the compute type, kept for backward. Scale 1/sqrt(C). scratch: at
// least AttentionScratch elements.
struct AttentionShape {
  int64_t seq, heads, kv_heads, head_dim;             // kv_heads divides heads
  int64_t group() const { return heads / kv_heads; }  // query heads that share a key head
};
int64_t AttentionScratch(const AttentionShape& shape);  // for as many threads as the caller may use now
void CausalAttentionForward(const at::Tensor& qkv, const AttentionShape& shape, const at::Tensor& out,
                            const at::Tensor& log_sum_exp, const at::Tensor& scratch);
// dqkv overwritten; same layout as qkv.
void CausalAttentionBackward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const at::Tensor& log_sum_exp, const AttentionShape& shape, const at::Tensor& dqkv,
                             const at::Tensor& scratch);

// Rows of a vocabulary shard: token id v has row v - first_row here, or none (then y is 0 for it).
void EmbeddingForward(const at::Tensor& ids_T, const at::Tensor& table_VD, int64_t first_row, const at::Tensor& y_TD);
// dtable += (beta 1) or = (beta 0): sums dy of equal ids in token order.
void EmbeddingBackward(const at::Tensor& ids_T, const at::Tensor& dy_TD, int64_t first_row, double beta,
                       const at::Tensor& dtable_VD);

// Vocabulary-parallel cross entropy in three local steps, with a collective between (tensor_parallel does those):
// 1. max_T over the first `valid` columns of logits (columns past it are padding).
void CrossEntropyMax(const at::Tensor& logits_TV, int64_t valid, const at::Tensor& max_T);
// 2. logits become exp(logits - max) in place (padding 0); sum_T their row sums; target_T the original logit of the
// label
//    minus max where the label is in this shard (first_row .. first_row + valid - 1), else 0. A label of -100 has no
//    target.
void CrossEntropyExp(const at::Tensor& logits_TV, int64_t valid, int64_t first_row, const at::Tensor& labels_T,
                     const at::Tensor& max_T, const at::Tensor& sum_T, const at::Tensor& target_T);
// 3. exp_TV becomes the gradient of scale * sum(loss): (exp / sum - onehot) * scale, rows with label -100 all 0.
//    Returns the sum over valid rows of log(sum) - target, in fp64 and token order.
double CrossEntropyGrad(const at::Tensor& exp_TV, int64_t valid, int64_t first_row, const at::Tensor& labels_T,
                        const at::Tensor& sum_T, const at::Tensor& target_T, double scale);

// AdamW (Loshchilov & Hutter 2019, algorithm 2) on `n` elements from `begin` of flat buffers; step counts from 1; the
// gradient is multiplied by grad_scale (clipping) first.
struct AdamWStep {
  double lr, beta1, beta2, eps, weight_decay, grad_scale;
  int64_t step;
};
void AdamW(const AdamWStep& hyper, int64_t begin, int64_t n, const at::Tensor& value, const at::Tensor& grad,
           const at::Tensor& first_moment, const at::Tensor& second_moment);
// value -= lr * (grad_scale * grad + weight_decay * value).
void Sgd(double lr, double weight_decay, double grad_scale, int64_t begin, int64_t n, const at::Tensor& value,
         const at::Tensor& grad);

// Sum of squares of n elements from begin, in fp64 and a fixed order: never overflows for fp32 input.
double SumOfSquares(const at::Tensor& flat, int64_t begin, int64_t n);

}  // namespace trireme::kernels
