// Each unit's explicit backward, and the whole model's, against torch autograd in fp64 within 1e-10.

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "model/stage.h"
#include "model/test_model.h"
#include "model_spec/model_spec.h"
#include "testing/rank_world.h"

namespace trireme {
namespace {

using testing::Params;
using testing::TinyBatch;
using testing::TinyLlama;

// The model in ATen operations on the tape, with leaves made from the same values.
class Reference {
 public:
  Reference(const ModelOptions& model, Params& params) : m_(model) {
    for (const LocalParam& param : params.table().params()) {
      leaves_[param.spec.name] =
          params.Value(param.spec.name).narrow(0, 0, param.spec.shape[0]).clone().set_requires_grad(true);
    }
  }
  const at::Tensor& Leaf(const std::string& name) const { return leaves_.at(name); }
  at::Tensor Grad(const std::string& name) const { return leaves_.at(name).grad(); }
  const std::map<std::string, at::Tensor>& leaves() const { return leaves_; }

  at::Tensor Embedding(const MicroBatch& batch) const {
    return at::embedding(Leaf("model.embed_tokens.weight"), batch.tokens_BT.view({-1}));
  }

  at::Tensor Block(const at::Tensor& x, int layer) const {
    const auto w = [&](const char* name) { return Leaf(fmt::format("model.layers.{}.{}.weight", layer, name)); };
    const int64_t batch = x.size(0) / m_.seq, c = m_.head_dim, group = m_.heads / m_.kv_heads;
    const at::Tensor n = Norm(x, w("input_layernorm"));
    const auto heads = [&](const char* name, int64_t count) {
      return at::linear(n, w(name)).view({batch, m_.seq, count, c}).transpose(1, 2);
    };
    const at::Tensor q = Rotate(heads("self_attn.q_proj", m_.heads));
    const at::Tensor k = Rotate(heads("self_attn.k_proj", m_.kv_heads)).repeat_interleave(group, 1);
    const at::Tensor v = heads("self_attn.v_proj", m_.kv_heads).repeat_interleave(group, 1);
    const at::Tensor future = at::ones({m_.seq, m_.seq}, at::kBool).triu(1);
    const at::Tensor scores =
        (q.matmul(k.transpose(-2, -1)) / std::sqrt(static_cast<double>(c))).masked_fill(future, -INFINITY);
    const at::Tensor o = scores.softmax(-1).matmul(v).transpose(1, 2).reshape({x.size(0), m_.heads * c});
    const at::Tensor h = x + at::linear(o, w("self_attn.o_proj"));
    const at::Tensor n2 = Norm(h, w("post_attention_layernorm"));
    return h + at::linear(at::silu(at::linear(n2, w("mlp.gate_proj"))) * at::linear(n2, w("mlp.up_proj")),
                          w("mlp.down_proj"));
  }

  at::Tensor LossSum(const at::Tensor& x, const MicroBatch& batch) const {
    const at::Tensor logits =
        at::linear(Norm(x, Leaf("model.norm.weight")), Leaf(m_.tied ? "model.embed_tokens.weight" : "lm_head.weight"));
    return at::cross_entropy_loss(logits, batch.labels_BT.view({-1}), {}, at::Reduction::Sum, -100);
  }

 private:
  at::Tensor Norm(const at::Tensor& x, const at::Tensor& weight) const {
    return x * (x.pow(2).mean(-1, true) + m_.norm_eps).rsqrt() * weight;
  }
  at::Tensor Rotate(const at::Tensor& x) const {
    const int64_t half = m_.head_dim / 2;
    const at::Tensor inverse =
        at::pow(m_.rope_theta, at::arange(0, half, at::kDouble) * (-2.0 / static_cast<double>(m_.head_dim)));
    const at::Tensor angle = at::outer(at::arange(m_.seq, at::kDouble), inverse);
    const at::Tensor low = x.narrow(-1, 0, half), high = x.narrow(-1, half, half);
    return at::cat({low * angle.cos() - high * angle.sin(), high * angle.cos() + low * angle.sin()}, -1);
  }

  ModelOptions m_;
  std::map<std::string, at::Tensor> leaves_;
};

void ExpectClose(const at::Tensor& want, const at::Tensor& got, const std::string& what) {
  EXPECT_LE((want - got).norm().item<double>(), 1e-10 * want.norm().item<double>()) << what;
}

// Runs units first .. last - 1 of a tiny llama both ways.
void CompareUnits(bool tied, int first, int last) {
  const ModelOptions m = TinyLlama(tied);
  testing::RankWorld(1).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 1), 1, 0));
    ModelStage stage(m, at::kDouble, params, rank.world, first, last);
    const MicroBatch batch = TinyBatch(m);
    const auto kept = stage.NewActivations();
    const int head = static_cast<int>(m.layers) + 1;
    at::Tensor input, dy;
    const Philox random(5, "stream");
    const auto stream = [&](uint64_t at) {
      at::Tensor x = at::empty({batch.tokens_BT.numel(), m.hidden}, at::kDouble);
      for (int64_t i = 0; i < x.numel(); ++i)
        x.mutable_data_ptr<double>()[i] = random.Normal(at + static_cast<uint64_t>(i));
      return x;
    };
    if (first > 0) input = stream(0);
    if (last <= head) dy = stream(1000);

    const at::Tensor output = stage.Forward(input, batch, *kept);
    const at::Tensor kept_output = output.defined() ? output.clone() : output;
    const at::Tensor dx = stage.Backward(dy, *kept);

    // Parameters of other units are not made by the stage: only what it took has values.
    Params all(ShardingTable(ParamTable(m, 1), 1, 0));
    ModelStage everything(m, at::kDouble, all, rank.world, 0, head + 1);
    const Reference reference(m, all);
    at::Tensor x = first > 0 ? input.clone().set_requires_grad(true) : reference.Embedding(batch);
    const at::Tensor leaf = x;
    for (int unit = std::max(first, 1); unit < std::min(last, head); ++unit) x = reference.Block(x, unit - 1);
    if (last > head) {
      const at::Tensor sum = reference.LossSum(x, batch);
      EXPECT_NEAR(sum.item<double>(), stage.LossSum(*kept), 1e-10 * sum.item<double>());
      (sum * batch.loss_scale).backward();
    } else {
      ExpectClose(x.detach(), kept_output, "output");
      x.backward(dy);
    }
    if (first > 0) ExpectClose(leaf.grad(), dx, "input gradient");
    int64_t compared = 0;
    for (const auto& [name, tensor] : reference.leaves()) {
      if (!tensor.grad().defined()) continue;
      ExpectClose(tensor.grad(), params.Grad(name).narrow(0, 0, tensor.size(0)), name);
      ++compared;
    }
    EXPECT_GT(compared, 0);
  });
}

TEST(Autograd, Embedding) { CompareUnits(false, 0, 1); }
TEST(Autograd, Block) { CompareUnits(false, 1, 2); }
TEST(Autograd, Head) { CompareUnits(false, 3, 4); }
TEST(Autograd, TiedHead) { CompareUnits(true, 3, 4); }
TEST(Autograd, WholeModel) { CompareUnits(false, 0, 4); }
TEST(Autograd, WholeTiedModel) { CompareUnits(true, 0, 4); }

}  // namespace
}  // namespace trireme
