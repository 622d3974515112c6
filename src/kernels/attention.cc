#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>

#include "kernels/kernels.h"

namespace trireme::kernels {
namespace {

// [B, heads, seq, C] view of `heads` heads that begin at head `first` of each row; grouped heads repeated to `repeat`.
at::Tensor Heads(const at::Tensor& rows, int64_t seq, int64_t first, int64_t heads, int64_t head_dim, int64_t repeat) {
  const int64_t stride = rows.stride(0), batch = rows.size(0) / seq;
  const at::Tensor view = rows.as_strided({batch, heads, 1, seq, head_dim}, {seq * stride, head_dim, 0, stride, 1},
                                          rows.storage_offset() + first * head_dim);
  return view.expand({batch, heads, repeat, seq, head_dim}).reshape({batch, heads * repeat, seq, head_dim});
}

}  // namespace

void CausalAttentionForward(const at::Tensor& qkv, int64_t seq, int64_t heads, int64_t kv_heads, int64_t head_dim,
                            const at::Tensor& out, const at::Tensor& log_sum_exp) {
  const int64_t group = heads / kv_heads;
  const auto [o, lse] = at::_scaled_dot_product_flash_attention_for_cpu(
      Heads(qkv, seq, 0, heads, head_dim, 1), Heads(qkv, seq, heads, kv_heads, head_dim, group),
      Heads(qkv, seq, heads + kv_heads, kv_heads, head_dim, group), 0.0, true);
  Heads(out, seq, 0, heads, head_dim, 1).copy_(o);
  log_sum_exp.copy_(lse.view_as(log_sum_exp));
}

void CausalAttentionBackward(const at::Tensor& dout, const at::Tensor& qkv, const at::Tensor& out,
                             const at::Tensor& log_sum_exp, int64_t seq, int64_t heads, int64_t kv_heads,
                             int64_t head_dim, const at::Tensor& dqkv) {
  const int64_t group = heads / kv_heads, batch = qkv.size(0) / seq;
  const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
      Heads(dout, seq, 0, heads, head_dim, 1), Heads(qkv, seq, 0, heads, head_dim, 1),
      Heads(qkv, seq, heads, kv_heads, head_dim, group), Heads(qkv, seq, heads + kv_heads, kv_heads, head_dim, group),
      Heads(out, seq, 0, heads, head_dim, 1), log_sum_exp, 0.0, true);
  const auto over_group = [&](const at::Tensor& g) {
    return g.reshape({batch, kv_heads, group, seq, head_dim}).sum(2);
  };
  Heads(dqkv, seq, 0, heads, head_dim, 1).copy_(dq);
  Heads(dqkv, seq, heads, kv_heads, head_dim, 1).copy_(over_group(dk));
  Heads(dqkv, seq, heads + kv_heads, kv_heads, head_dim, 1).copy_(over_group(dv));
}

}  // namespace trireme::kernels
