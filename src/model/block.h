#pragma once
// A LLaMA block (Touvron et al. 2023, section 2): h = x + attention(norm(x)); y = h + mlp(norm(h)). Heads and MLP
// columns are cut over tp; q|k|v and gate|up are one matrix product each.

#include "kernels/kernels.h"
#include "model/norm.h"
#include "model/stage.h"
#include "model/unit.h"
#include "tensor_parallel/linear.h"

namespace trireme {

class Block : public Unit {
 public:
  struct Layers {
    RmsNorm norm1, norm2;
    ColumnParallelLinear qkv, gate_up;
    RowParallelLinear output, down;
  };
  // shape: of this rank's heads, at the longest sequence. cos, sin: [seq, head_dim / 2].
  Block(Layers layers, kernels::AttentionShape shape, at::Tensor cos, at::Tensor sin)
      : layers_(std::move(layers)), shape_(shape), cos_(std::move(cos)), sin_(std::move(sin)) {}

  at::Tensor Forward(const at::Tensor& x, const MicroBatch& batch, std::unique_ptr<Saved>& saved, Arena& keep,
                     Arena& scratch) override;
  at::Tensor Backward(const at::Tensor& dy, Saved& saved, bool with_weights, Arena& keep, Arena& scratch) override;
  void BackwardWeight(Saved& saved) override;

 private:
  struct Kept : Saved {
    kernels::AttentionShape shape;
    RmsNorm::Kept norm1, norm2;
    at::Tensor qkv, log_sum_exp, attention, gate_up, activated;
    at::Tensor dqkv, dh, dgate_up, dy;  // set by Backward, for the weight gradients
  };
  void Rotate(const at::Tensor& qkv, const kernels::AttentionShape& shape, bool inverse) const;

  Layers layers_;
  kernels::AttentionShape shape_;
  at::Tensor cos_, sin_;
};

}  // namespace trireme
