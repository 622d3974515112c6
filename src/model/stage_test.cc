// The explicit backward against central differences of the loss in fp64, and tensor parallelism against one rank.

#include "model/stage.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "model/test_model.h"
#include "model_spec/model_spec.h"
#include "testing/rank_world.h"

namespace trireme {
namespace {

using testing::Params;
using testing::TinyBatch;
using testing::TinyLlama;

class Stage : public ::testing::TestWithParam<bool> {};

TEST_P(Stage, BackwardIsTheDerivativeOfTheLoss) {
  const ModelOptions m = TinyLlama(GetParam());
  testing::RankWorld(1).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 1), 1, 0));
    ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
    const MicroBatch batch = TinyBatch(m);
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
  const ModelOptions m = TinyLlama(GetParam());
  testing::RankWorld(2).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 2), 2, rank.rank()));
    ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
    const auto kept = stage.NewActivations();
    stage.Forward({}, TinyBatch(m), *kept);
    stage.Backward({}, *kept);
    std::map<std::string, at::Tensor> whole;
    for (const LocalParam& param : params.table().params())
      whole[param.spec.name] = params.Grad(param.spec.name).clone();
    params.BeginStep();
    stage.Forward({}, TinyBatch(m), *kept);
    stage.BackwardInput({}, *kept);
    stage.BackwardWeight(*kept);
    for (const auto& [name, grad] : whole) EXPECT_TRUE(grad.equal(params.Grad(name))) << name;
  });
}

TEST_P(Stage, TensorParallelRanksHoldSlicesOfTheSameGradient) {
  const ModelOptions m = TinyLlama(GetParam());
  double want_loss = 0;
  std::map<std::string, at::Tensor> want;
  testing::RankWorld(1).Run([&](testing::Rank& rank) {
    Params params(ShardingTable(ParamTable(m, 1), 1, 0));
    ModelStage stage(m, at::kDouble, params, rank.world, 0, 4);
    const auto kept = stage.NewActivations();
    stage.Forward({}, TinyBatch(m), *kept);
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
      stage.Forward({}, TinyBatch(m), *kept);
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
