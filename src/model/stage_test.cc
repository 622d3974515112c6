// The explicit backward against central differences of the loss in fp64, and tensor parallelism against one rank.

#include "model/stage.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <map>

#include "base/philox.h"
#include "model_spec/model_spec.h"
#include "sharding/sharding_table.h"
#include "testing/rank_world.h"

namespace trireme {
namespace {

ModelOptions Tiny(bool tied) {
  ModelOptions m;
  m.layers = 2;
  m.hidden = 8;
  m.heads = 4;
  m.kv_heads = 2;
  m.head_dim = 2;
  m.ffn = 12;
  m.vocab = 11;
  m.seq = 5;
  m.padded_vocab = 4;
  m.tied = tied;
  m.init_std = 0.3;
  return m;
}

// Parameters as separate tensors, fused on demand by copying them into one buffer at construction.
class Params : public ParamSource {
 public:
  Params(const ShardingTable& table) : table_(table) {}
  Param Get(const std::vector<std::string>& names) override {
    if (const auto at = entries_.find(names[0]); at != entries_.end())
      return {at->second.value, at->second.grad, &at->second.written};
    int64_t rows = 0;
    Shape shape = table_.Find(names[0]).local_shape;
    for (const std::string& name : names) rows += table_.Find(name).local_shape[0];
    shape[0] = rows;
    Entry& entry = entries_[names[0]];
    entry.value = at::zeros(shape, at::kDouble);
    entry.grad = at::zeros(shape, at::kDouble);
    int64_t row = 0;
    for (const std::string& name : names) {
      const LocalParam& param = table_.Find(name);
      at::Tensor value = entry.value.narrow(0, row, param.local_shape[0]);
      views_[name] = {value, entry.grad.narrow(0, row, param.local_shape[0])};
      row += param.local_shape[0];
      Fill(param, value);
    }
    return {entry.value, entry.grad, &entry.written};
  }
  void BeginStep() {
    for (auto& [name, entry] : entries_) entry.written = false;
  }
  at::Tensor Value(const std::string& name) { return views_.at(name).first; }
  at::Tensor Grad(const std::string& name) { return views_.at(name).second; }
  const ShardingTable& table() const { return table_; }

 private:
  struct Entry {
    at::Tensor value, grad;
    bool written = false;
  };
  static void Fill(const LocalParam& param, at::Tensor value) {
    const Philox random(3, param.spec.name);
    const int64_t global_columns = param.spec.shape.size() > 1 ? param.spec.shape[1] : 1;
    at::Tensor flat = value.view({value.size(0), -1});
    for (int64_t r = 0; r < param.rectangle.size[0]; ++r) {
      for (int64_t c = 0; c < (param.spec.shape.size() > 1 ? param.rectangle.size[1] : 1); ++c) {
        const int64_t column = param.spec.shape.size() > 1 ? param.rectangle.offset[1] + c : 0;
        const double x =
            0.3 * random.Normal(static_cast<uint64_t>((param.rectangle.offset[0] + r) * global_columns + column));
        flat[r][c].fill_(param.spec.kind == ParamKind::kNorm ? 1 + x : x);
      }
    }
  }
  ShardingTable table_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::pair<at::Tensor, at::Tensor>> views_;
};

MicroBatch Batch(const ModelOptions& m) {
  MicroBatch batch;
  batch.tokens_BT = at::empty({2, m.seq}, at::kLong);
  batch.labels_BT = at::empty({2, m.seq}, at::kLong);
  for (int64_t i = 0; i < 2 * m.seq; ++i) {
    batch.tokens_BT.mutable_data_ptr<int64_t>()[i] = (i * 7 + 3) % m.vocab;
    batch.labels_BT.mutable_data_ptr<int64_t>()[i] = i == 4 ? -100 : (i * 5 + 1) % m.vocab;
  }
  batch.loss_scale = 1.0 / 9;  // ten labels, one of them ignored
  return batch;
}

class Stage : public ::testing::TestWithParam<bool> {};

TEST_P(Stage, BackwardIsTheDerivativeOfTheLoss) {
  const ModelOptions m = Tiny(GetParam());
  testing::RankWorld(1).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 1), 1, 0));
    ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
    const MicroBatch batch = Batch(m);
    const auto kept = stage.NewActivations();
    const auto loss = [&] {
      stage.Forward({}, batch, *kept);
      return stage.LossSum(*kept) * batch.loss_scale;
    };
    loss();
    stage.Backward({}, *kept);
    for (const LocalParam& param : params.table().params()) {
      at::Tensor value = params.Value(param.spec.name).view({-1}), grad = params.Grad(param.spec.name).reshape({-1});
      const int64_t valid = NumElements(param.rectangle.size);
      for (int64_t i = 0; i < valid; i += 1 + valid / 7) {
        double* at = value.mutable_data_ptr<double>() + i;
        const double keep = *at, step = 1e-5;
        *at = keep + step;
        const double up = loss();
        *at = keep - step;
        const double down = loss();
        *at = keep;
        // Central differences are exact to step^2 ~ 1e-10 and rounding 1e-16 / step ~ 1e-11.
        EXPECT_NEAR((up - down) / (2 * step), grad[i].item<double>(), 2e-8) << param.spec.name << " element " << i;
      }
    }
  });
}

TEST_P(Stage, BackwardInTwoPartsGivesTheSameBits) {
  const ModelOptions m = Tiny(GetParam());
  testing::RankWorld(2).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 2), 2, rank.rank()));
    ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
    const auto kept = stage.NewActivations();
    stage.Forward({}, Batch(m), *kept);
    stage.Backward({}, *kept);
    std::map<std::string, at::Tensor> whole;
    for (const LocalParam& param : params.table().params())
      whole[param.spec.name] = params.Grad(param.spec.name).clone();
    params.BeginStep();
    stage.Forward({}, Batch(m), *kept);
    stage.BackwardInput({}, *kept);
    stage.BackwardWeight(*kept);
    for (const auto& [name, grad] : whole) EXPECT_TRUE(grad.equal(params.Grad(name))) << name;
  });
}

TEST_P(Stage, TensorParallelRanksHoldSlicesOfTheSameGradient) {
  const ModelOptions m = Tiny(GetParam());
  double want_loss = 0;
  std::map<std::string, at::Tensor> want;
  testing::RankWorld(1).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 1), 1, 0));
    ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
    const auto kept = stage.NewActivations();
    stage.Forward({}, Batch(m), *kept);
    want_loss = stage.LossSum(*kept);
    stage.Backward({}, *kept);
    for (const LocalParam& param : params.table().params())
      want[param.spec.name] = params.Grad(param.spec.name).narrow(0, 0, param.spec.shape[0]).clone();
  });
  for (const int tp : {2, 4}) {
    testing::RankWorld(tp).Run([&](testing::Rank& rank) {
      Params params(ShardingTable(ParamTable(m, tp), tp, rank.rank()));
      ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
      const auto kept = stage.NewActivations();
      stage.Forward({}, Batch(m), *kept);
      EXPECT_NEAR(stage.LossSum(*kept), want_loss, 1e-11);
      stage.Backward({}, *kept);
      for (const LocalParam& param : params.table().params()) {
        at::Tensor slice = want.at(param.spec.name), mine = params.Grad(param.spec.name).clone();
        if (param.partial_gradient) {
          // Two key/value heads over four ranks: pairs of ranks hold partial sums of one head.
          at::Tensor all = at::zeros({tp, mine.numel()}, at::kDouble);
          rank.world.AllGather(all, mine.contiguous())->Wait();
          const int64_t first = rank.rank() / param.replicas * param.replicas;
          mine = all.narrow(0, first, param.replicas).sum(0).view(param.local_shape);
        }
        for (size_t d = 0; d < param.spec.shape.size(); ++d) {
          slice = slice.narrow(static_cast<int64_t>(d), param.rectangle.offset[d], param.rectangle.size[d]);
          mine = mine.narrow(static_cast<int64_t>(d), 0, param.rectangle.size[d]);
        }
        EXPECT_LE((slice - mine).norm().item<double>(), 1e-10 * want.at(param.spec.name).norm().item<double>())
            << param.spec.name << " tp " << tp;
      }
    });
  }
}

INSTANTIATE_TEST_SUITE_P(TiedAndUntied, Stage, ::testing::Bool());

}  // namespace
}  // namespace trireme
