// The library against one process, in fp64: gradients of any module within 1e-10.

#include <gmock/gmock.h>
#include <torch/torch.h>

#include "testing/rank_world.h"
#include "trireme/distributed_data_parallel.h"
#include "trireme/tensor_parallel.h"

namespace trireme::testing {
namespace {

// Registered in another order than used, one parameter used twice, batch statistics as buffers.
struct SmallConvolutionalImpl : torch::nn::Module {
  explicit SmallConvolutionalImpl(bool statistics = false) {
    head = register_module("head", torch::nn::Linear(8 * 4 * 4, 5));
    conv2 = register_module("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 8, 3).padding(1)));
    conv1 = register_module("conv1", torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).padding(1)));
    if (statistics) norm = register_module("norm", torch::nn::BatchNorm2d(8));
    unused = register_module("unused", torch::nn::Linear(2, 2));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x, bool all = true) {
    torch::Tensor y = conv1(x);
    if (!norm.is_empty()) y = norm(y);
    y = torch::max_pool2d(torch::relu(conv2(torch::relu(conv2(torch::relu(y))))), 2);
    y = head(y.flatten(1));
    return all ? y + unused->bias.sum() * unused->weight.sum() : y;
  }
  torch::nn::Linear head{nullptr}, unused{nullptr};
  torch::nn::Conv2d conv1{nullptr}, conv2{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
};
TORCH_MODULE(SmallConvolutional);

// A transformer layer over [batch, 8, 16].
struct SmallTransformerImpl : torch::nn::Module {
  SmallTransformerImpl() {
    layer =
        register_module("layer", torch::nn::TransformerEncoderLayer(
                                     torch::nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0)));
    head = register_module("head", torch::nn::Linear(16, 5));
    to(torch::kDouble);
  }
  torch::Tensor forward(const torch::Tensor& x) { return head(layer(x.transpose(0, 1)).mean(0)); }
  torch::nn::TransformerEncoderLayer layer{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(SmallTransformer);

torch::Tensor Fixed(torch::IntArrayRef sizes, double seed) {  // no generator: threads share the default one
  const torch::Tensor t = torch::arange(c10::multiply_integers(sizes), torch::kDouble);
  return torch::sin(t * 0.37 + seed * 1.7).view(sizes);
}

template <class Module>
void Fill(Module& module) {
  const torch::NoGradGuard no_grad;
  double seed = 0;
  for (auto& p : module->parameters()) p.copy_(Fixed(p.sizes(), seed += 1) * 0.3);
}

void ExpectClose(const torch::Tensor& expected, const torch::Tensor& got, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  const double size = expected.norm().item<double>(), apart = (expected - got).norm().item<double>();
  EXPECT_LE(apart, 1e-10 * size + 1e-300) << what;
}

struct Case {
  int ranks;
  int accumulate;        // micro-batches, all but the last under NoSync
  int64_t bucket_bytes;  // small: several buckets
  bool drop_grads;       // between steps: set to none, else filled with 0
};

class Ddp : public ::testing::TestWithParam<Case> {};

// `ranks` ranks, each with its part of 12 samples, for two steps: mean gradients equal one rank's with all samples.
template <class Module>
void CompareWithOneRank(const Case& c, torch::IntArrayRef sample) {
  std::vector<int64_t> sizes{12};
  sizes.insert(sizes.end(), sample.begin(), sample.end());
  const torch::Tensor target = Fixed({12, 5}, 9);
  Module whole;
  Fill(whole);
  std::vector<std::vector<torch::Tensor>> expected;
  for (int step = 0; step < 2; ++step) {
    whole->zero_grad();
    torch::mse_loss(whole->forward(Fixed(sizes, step)), target).backward();
    expected.emplace_back();
    for (const auto& p : whole->parameters()) expected.back().push_back(p.grad().clone());
  }
  RankWorld(c.ranks).Run([&](Rank& rank) {
    Module module;
    if (rank.world.rank() == 0) Fill(module);  // the others get rank 0's
    DistributedDataParallel ddp(module, rank.world,
                                {.bucket = Bytes(c.bucket_bytes), .first_bucket = Bytes(c.bucket_bytes)});
    if (c.bucket_bytes < 1000) EXPECT_GE(ddp.buckets(), 3u);
    torch::optim::SGD optimizer(module->parameters(), 0.1);
    const int64_t part = 12 / c.ranks, micro = part / c.accumulate;
    for (int step = 0; step < 2; ++step) {
      optimizer.zero_grad(c.drop_grads);
      const torch::Tensor x = Fixed(sizes, step);
      const auto backward = [&](int m) {
        const int64_t first = rank.world.rank() * part + m * micro;
        const torch::Tensor y = ddp.Forward(module, x.narrow(0, first, micro));
        (torch::mse_loss(y, target.narrow(0, first, micro)) / c.accumulate).backward();
      };
      {
        const auto local = ddp.NoSync();
        for (int m = 0; m + 1 < c.accumulate; ++m) backward(m);
      }
      backward(c.accumulate - 1);
      const auto parameters = module->named_parameters();
      for (size_t i = 0; i < parameters.size(); ++i) {
        ExpectClose(expected[static_cast<size_t>(step)][i], parameters[i].value().grad(), parameters[i].key());
      }
    }
  });
}

TEST_P(Ddp, ConvolutionalGradientsEqualOneRank) { CompareWithOneRank<SmallConvolutional>(GetParam(), {3, 8, 8}); }
TEST_P(Ddp, TransformerGradientsEqualOneRank) { CompareWithOneRank<SmallTransformer>(GetParam(), {8, 16}); }

INSTANTIATE_TEST_SUITE_P(Cases, Ddp,
                         ::testing::Values(Case{1, 1, 1 << 20, true}, Case{2, 1, 1 << 20, true}, Case{2, 3, 500, true},
                                           Case{3, 4, 500, false}, Case{4, 1, 500, false}, Case{2, 2, 500, false}));

TEST(Ddp, UnusedParametersAreNamed) {
  EXPECT_THAT(
      [] {
        RankWorld(2).Run([](Rank& rank) {
          SmallConvolutional module;
          DistributedDataParallel ddp(module, rank.world);
          ddp.PrepareForward(true);
          module->forward(Fixed({2, 3, 8, 8}, 1), false).sum().backward();
        });
      },
      ::testing::ThrowsMessage<std::exception>(::testing::HasSubstr("unused.weight")));
}

// Rank 0 uses all, rank 1 does not: the mean counts 0 for rank 1. Used nowhere: no gradient appears.
TEST(Ddp, UnusedParametersCountAsZero) {
  RankWorld(2).Run([](Rank& rank) {
    SmallConvolutional module;
    Fill(module);
    DistributedDataParallel ddp(module, rank.world, {.find_unused_parameters = true});
    const torch::Tensor x = Fixed({2, 3, 8, 8}, 1);
    module->forward(x, rank.world.rank() == 0).sum().backward();
    // d/d(bias) of sum over 10 outputs of bias.sum() * weight.sum() is 10 weight.sum(), and half of it is the mean.
    EXPECT_NEAR(module->unused->bias.grad()[0].item<double>(), 5 * module->unused->weight.sum().item<double>(), 1e-12);
    module->zero_grad();
    module->unused->bias.mutable_grad().reset();
    module->forward(x, false).sum().backward();
    EXPECT_FALSE(module->unused->bias.grad().defined());
  });
}

TEST(Ddp, BuffersAreRankZeros) {
  RankWorld(2).Run([](Rank& rank) {
    SmallConvolutional module(true);
    Fill(module);
    DistributedDataParallel ddp(module, rank.world);
    ddp.Forward(module, Fixed({2, 3, 8, 8}, rank.world.rank() + 1)).sum().backward();
    ddp.Forward(module, Fixed({2, 3, 8, 8}, 3)).sum().backward();
    const torch::Tensor mine = module->norm->running_mean.clone();
    torch::Tensor zeros = mine.clone();
    rank.world.Broadcast(zeros, 0)->Wait();
    EXPECT_TRUE(torch::equal(mine, zeros));
  });
}

TEST(Ddp, DifferentModulesAreRefusedOnEveryRank) {
  EXPECT_THAT(
      [] {
        RankWorld(2).Run([](Rank& rank) {
          torch::nn::Linear module(2 + rank.world.rank(), 3);
          DistributedDataParallel ddp(module, rank.world);
        });
      },
      ::testing::ThrowsMessage<CommError>(::testing::HasSubstr("expected the same parameters")));
}

// An MLP cut over tp equals the whole one: output, input gradient, and each rank's part of every weight gradient.
TEST(TensorParallel, CutLayersEqualWholeOnes) {
  const nn::ParallelLinearOptions first{.seed = 3, .name = "up", .type = at::kDouble},
      second{.seed = 3, .name = "down", .type = at::kDouble};
  struct Result {
    torch::Tensor y, dx, up, up_bias, down, down_bias;
  };
  const auto run = [&](Communicator& tp) {
    nn::ColumnParallelLinear up(6, 8, tp, first);
    nn::RowParallelLinear down(8, 6, tp, second);
    torch::Tensor x = Fixed({4, 6}, 1).requires_grad_();
    const torch::Tensor y = down->forward(torch::gelu(up->forward(x)));
    (y * Fixed({4, 6}, 2)).sum().backward();
    return Result{y.detach(), x.grad(), up->weight.grad(), up->bias.grad(), down->weight.grad(), down->bias.grad()};
  };
  Result whole;
  RankWorld(1).Run([&](Rank& rank) { whole = run(rank.world); });
  for (const int ranks : {2, 4}) {
    RankWorld(ranks).Run([&](Rank& rank) {
      const Result cut = run(rank.world);
      const int64_t part = 8 / ranks, first_row = part * rank.world.rank();
      ExpectClose(whole.y, cut.y, "y");
      ExpectClose(whole.dx, cut.dx, "dx");
      ExpectClose(whole.up.narrow(0, first_row, part), cut.up, "up.weight");
      ExpectClose(whole.up_bias.narrow(0, first_row, part), cut.up_bias, "up.bias");
      ExpectClose(whole.down.narrow(1, first_row, part), cut.down, "down.weight");
      ExpectClose(whole.down_bias, cut.down_bias, "down.bias");
    });
  }
  EXPECT_THAT([] { RankWorld(4).Run([](Rank& rank) { nn::ColumnParallelLinear layer(4, 6, rank.world); }); },
              ::testing::ThrowsMessage<Error>(::testing::HasSubstr("out 6 is not a multiple of the 4 ranks")));
}

}  // namespace
}  // namespace trireme::testing
