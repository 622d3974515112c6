#include "optim/optimizer.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <cmath>

#include "testing/rank_world.h"

namespace trireme {
namespace {

TEST(LearningRate, FollowsItsFormula) {
  OptimizerOptions o;
  o.lr = 1.0;
  o.warmup = 10;
  o.min_lr = 0.1;
  o.schedule = "cosine";
  EXPECT_DOUBLE_EQ(LearningRate(o, 1, 100), 0.1);
  EXPECT_DOUBLE_EQ(LearningRate(o, 10, 100), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(o, 55, 100), 0.55);  // half way: the mean of both ends
  EXPECT_DOUBLE_EQ(LearningRate(o, 100, 100), 0.1);
  o.schedule = "linear";
  EXPECT_DOUBLE_EQ(LearningRate(o, 55, 100), 0.55);
  o.schedule = "wsd";
  EXPECT_DOUBLE_EQ(LearningRate(o, 80, 100), 1.0);
  EXPECT_DOUBLE_EQ(LearningRate(o, 90, 100), 0.55);
  o.schedule = "constant";
  EXPECT_DOUBLE_EQ(LearningRate(o, 99, 100), 1.0);
}

// w = 1, g = 2, lr 0.1, decay 0.5: the first step of Adam moves by lr (bias-corrected m / sqrt(v) = 1), decay by 0.05.
TEST(AdamW, FirstStepByHand) {
  OptimizerOptions o;
  o.eps = 0;
  const at::Tensor values = at::full({3}, 1.0, at::kDouble), grads = at::full({3}, 2.0, at::kDouble);
  const auto optimizer = MakeOptimizer(o, values, grads, {{0, 1, 0.5, true}, {1, 2, 0.0, true}});
  optimizer->Step(1, 0.1, 1.0);
  EXPECT_NEAR(values[0].item<double>(), 1 - 0.05 - 0.1, 1e-14);
  EXPECT_NEAR(values[1].item<double>(), 1 - 0.1, 1e-14);
  EXPECT_EQ(values[2].item<double>(), 1.0);  // in no range
  EXPECT_NEAR(optimizer->state().at("exp_avg_sq")[0].item<double>(), 0.05 * 4, 1e-14);
}

TEST(Sgd, StepByHand) {
  OptimizerOptions o;
  o.name = "sgd";
  const at::Tensor values = at::full({1}, 1.0, at::kFloat), grads = at::full({1}, 2.0, at::kFloat);
  MakeOptimizer(o, values, grads, {{0, 1, 0.0, true}})->Step(1, 0.25, 0.5);
  EXPECT_EQ(values.item<float>(), 0.75f);
}

// Ranks hold 3 and 4 of a cut parameter, and both hold 12 of a whole one, counted by rank 0 alone: sqrt(9 + 16 + 144)
// = 13.
TEST(GradNorm, CountsEachLogicalParameterOnce) {
  testing::RankWorld(2).Run([](testing::Rank& rank) {
    at::Tensor grads = at::full({2}, 12.0, at::kFloat);
    grads[0].fill_(rank.rank() == 0 ? 3 : 4);
    EXPECT_EQ(GlobalGradNorm(grads, {{0, 1, 0, true}, {1, 2, 0, rank.rank() == 0}}, rank.world), 13.0);
    grads.fill_(1e20f);  // squares overflow fp32
    EXPECT_NEAR(GlobalGradNorm(grads, {{0, 2, 0, true}}, rank.world) / 2e20, 1.0, 1e-6);
  });
  EXPECT_EQ(ClipScale(10, 1), 0.1);
  EXPECT_EQ(ClipScale(0.5, 1), 1.0);
  EXPECT_EQ(ClipScale(10, 0), 1.0);
}

}  // namespace
}  // namespace trireme
