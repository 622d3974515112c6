#pragma once
// What kernels.h computes, as plain loops over fp64 tensors straight from the formulas: slow, serial, obviously right.
// Tests compare the kernels with them. Arguments as in kernels.h; results are returned, inputs left alone. Tensors
// contiguous.

#include <ATen/core/Tensor.h>

#include "kernels/kernels.h"

namespace trireme::kernels::reference {

// a_MK b_KN, each transposed first when asked, + beta c.
at::Tensor Matmul(const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b, double beta,
                  const at::Tensor& c);

at::Tensor RmsNorm(const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);
struct RmsNormGrads {
  at::Tensor dx_TD, dweight_D;
};
RmsNormGrads RmsNormBackward(const at::Tensor& dy_TD, const at::Tensor& x_TD, const at::Tensor& weight_D, double eps);

at::Tensor Rope(const at::Tensor& x, int64_t heads, int64_t head_dim, int64_t seq, double theta, bool inverse);

at::Tensor SwiGlu(const at::Tensor& gate_up_T2F);
at::Tensor SwiGluBackward(const at::Tensor& dy_TF, const at::Tensor& gate_up_T2F);

struct Attention {
  at::Tensor out, log_sum_exp, probabilities;  // probabilities: [B, H, seq, seq]
};
Attention CausalAttention(const at::Tensor& qkv, int64_t seq, int64_t heads, int64_t kv_heads, int64_t head_dim);
at::Tensor CausalAttentionBackward(const at::Tensor& dout, const at::Tensor& qkv, int64_t seq, int64_t heads,
                                   int64_t kv_heads, int64_t head_dim);

// Over the whole vocabulary (the first `valid` columns): the summed loss and the gradient of scale * loss.
struct CrossEntropyResult {
  double loss;
  at::Tensor dlogits_TV;
};
CrossEntropyResult CrossEntropy(const at::Tensor& logits_TV, int64_t valid, const at::Tensor& labels_T, double scale);

// One step on whole tensors, with bias-corrected moments written out as in the paper. Changes value and moments.
void AdamW(const AdamWStep& hyper, const at::Tensor& value, const at::Tensor& grad, const at::Tensor& first_moment,
           const at::Tensor& second_moment);

}  // namespace trireme::kernels::reference
