// Every layout computes the same step as one rank: loss, gradient norm and each gathered gradient within 1e-10 in fp64,
// and the weights after 20 steps within 1e-9. SGD, since AdamW would hide a wrong scale.

#include <ATen/TensorOperators.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "base/philox.h"
#include "comm/thread_world.h"
#include "data/token_file.h"
#include "train/session.h"

namespace trireme {
namespace {

constexpr int64_t kSeq = 7, kVocab = 61, kGlobalBatch = 48, kSteps = 20;  // 48 = lcm of dp 1,2,3,4 x accumulation 1,2,4

struct Layout {
  int dp, tp, accumulate;
  bool tied, masked;
};

void PrintTo(const Layout& l, std::ostream* out) {
  *out << "dp" << l.dp << " tp" << l.tp << " accumulate" << l.accumulate << (l.tied ? " tied" : "")
       << (l.masked ? " masked" : "");
}

// Tokens and a mask that gives ranks and micro-batches very uneven numbers of valid labels.
class Files {
 public:
  Files() : folder_(std::filesystem::temp_directory_path() / ("trireme-parity-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
    const Philox random(7, "parity tokens");
    const int64_t n = kGlobalBatch * kSeq * (kSteps + 1) + 1;
    std::vector<int32_t> tokens;
    std::string mask;
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back(static_cast<int32_t>(random.Bits64(static_cast<uint64_t>(i)) % kVocab));
      mask.push_back(random.Uniform(static_cast<uint64_t>(n + i)) < static_cast<double>(i % 97) / 97 ? 1 : 0);
    }
    TokenFileWriter writer(Prefix(), kVocab);
    writer.Append(tokens);
    writer.EndDocument();
    writer.Finish();
    std::ofstream(Mask(), std::ios::binary) << mask;
    num_tokens_ = n;
  }
  ~Files() { std::filesystem::remove_all(folder_); }
  std::string Prefix() const { return (folder_ / "tokens").string(); }
  std::string Mask() const { return (folder_ / "mask").string(); }
  int64_t num_tokens() const { return num_tokens_; }

 private:
  std::filesystem::path folder_;
  int64_t num_tokens_ = 0;
};

Config MakeConfig(const Layout& layout) {
  Config config;
  config.model.layers = 2;
  config.model.hidden = 16;
  config.model.heads = 4;
  config.model.kv_heads = 2;  // shared by pairs of ranks at tp 4
  config.model.ffn = 12;
  config.model.vocab = kVocab;
  config.model.seq = kSeq;
  config.model.padded_vocab = 4;  // 61 rows become 64: padding at every tp
  config.model.tied = layout.tied;
  config.model.init_std = 0.2;
  config.data.tokens = "given";
  config.data.validation = 0;
  config.batch.global = kGlobalBatch;
  config.batch.micro = kGlobalBatch / layout.dp / layout.accumulate;
  config.parallel.dp = layout.dp;
  config.parallel.tp = layout.tp;
  config.optimizer.name = "sgd";
  config.optimizer.lr = 0.1;
  config.optimizer.clip = 0.5;
  config.optimizer.schedule = "constant";
  config.precision.compute = "fp64";
  config.train.steps = kSteps;
  ResolveConfig(config, 0);
  return config;
}

struct Outcome {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> gradients,
      weights;  // whole tensors: gradients of step 1, weights after the last step
};

// Puts this rank's box of each tensor in its place; all replicas of a box must agree to the bit.
void Gather(const ParamStore& params, bool gradients, std::map<std::string, at::Tensor>& whole) {
  for (const LocalParam& param : params.table().params()) {
    const std::string& name = param.spec.name;
    at::Tensor local = gradients ? params.Grad(name) : params.Value(name);
    at::Tensor& target = whole.try_emplace(name, at::zeros(param.spec.shape, at::kDouble)).first->second;
    at::Tensor box = target;
    for (size_t d = 0; d < param.spec.shape.size(); ++d) {
      local = local.narrow(static_cast<int64_t>(d), 0, param.rectangle.size[d]);
      box = box.narrow(static_cast<int64_t>(d), param.rectangle.offset[d], param.rectangle.size[d]);
    }
    if (box.ne(0).any().item<bool>()) EXPECT_TRUE(box.equal(local)) << name << ": replicas of a box differ";
    box.copy_(local);
  }
}

Outcome Train(const Layout& layout, const Files& files, int64_t steps) {
  const Config config = MakeConfig(layout);
  const TrainingData data{files.Prefix(), layout.masked ? files.Mask() : "", files.num_tokens(), 0};
  Outcome outcome;
  std::mutex mutex;
  RunThreadRanks(layout.dp * layout.tp, std::chrono::seconds(60), [&](Communicator& world) {
    Session session(config, data, world);
    for (int64_t step = 1; step <= steps; ++step) {
      const StepResult result = session.Step(step, false, [&] {
        const std::lock_guard lock(mutex);
        if (step == 1) Gather(session.params(), true, outcome.gradients);
      });
      if (world.rank() == 0) {
        outcome.losses.push_back(result.loss);
        outcome.norms.push_back(result.grad_norm);
      }
    }
    const std::lock_guard lock(mutex);
    Gather(session.params(), false, outcome.weights);
  });
  return outcome;
}

void ExpectClose(const std::map<std::string, at::Tensor>& want, const std::map<std::string, at::Tensor>& got,
                 double bound) {
  ASSERT_EQ(want.size(), got.size());
  for (const auto& [name, a] : want) {
    const double difference = (a - got.at(name)).norm().item<double>();
    EXPECT_LE(difference, bound * a.norm().item<double>()) << name;
  }
}

void ExpectClose(const std::vector<double>& want, const std::vector<double>& got, double bound, const char* what) {
  ASSERT_EQ(want.size(), got.size());
  for (size_t i = 0; i < want.size(); ++i)
    EXPECT_LE(std::abs(want[i] - got[i]), bound * std::abs(want[i])) << what << " of step " << i + 1;
}

class Parity : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { files_ = std::make_unique<Files>(); }
  static void TearDownTestSuite() { files_.reset(); }
  static std::unique_ptr<Files> files_;
};
std::unique_ptr<Files> Parity::files_;

TEST_F(Parity, EveryLayoutComputesTheSameStepAsOneRank) {
  for (const bool tied : {false, true}) {
    for (const bool masked : {false, true}) {
      const Outcome one = Train({1, 1, 1, tied, masked}, *files_, 1);
      for (const int dp : {1, 2, 3, 4}) {
        for (const int tp : {1, 2, 4}) {
          for (const int accumulate : {1, 2, 4}) {
            const Layout layout{dp, tp, accumulate, tied, masked};
            SCOPED_TRACE(::testing::PrintToString(layout));
            const Outcome many = Train(layout, *files_, 1);
            ExpectClose(one.losses, many.losses, 1e-10, "loss");
            ExpectClose(one.norms, many.norms, 1e-10, "gradient norm");
            ExpectClose(one.gradients, many.gradients, 1e-10);
          }
        }
      }
    }
  }
}

TEST_F(Parity, TwentyStepsEndWithTheSameWeights) {
  for (const bool tied : {false, true}) {
    const Outcome one = Train({1, 1, 1, tied, true}, *files_, kSteps);
    for (const Layout& layout :
         {Layout{2, 1, 2, tied, true}, Layout{1, 4, 1, tied, true}, Layout{3, 2, 4, tied, true}}) {
      SCOPED_TRACE(::testing::PrintToString(layout));
      const Outcome many = Train(layout, *files_, kSteps);
      ExpectClose(one.losses, many.losses, 1e-9, "loss");
      ExpectClose(one.weights, many.weights, 1e-9);
    }
  }
}

TEST_F(Parity, FourAccumulatedMicroBatchesMoveAQuarterOfTheBytes) {
  // The same 48 sequences as one step of four micro-batches, or as four steps of one: 1 against 4 reductions.
  const auto bytes = [&](int accumulate, int64_t global, int64_t steps) {
    Config config = MakeConfig({2, 1, accumulate, false, false});
    config.batch.global = global;
    config.batch.micro = global / 2 / accumulate;
    int64_t sent = 0;
    RunThreadRanks(2, std::chrono::seconds(60), [&](Communicator& world) {
      Session session(config, {files_->Prefix(), "", files_->num_tokens(), 0}, world);
      const int64_t gradient = static_cast<int64_t>(session.params().grads().nbytes());
      for (int64_t step = 1; step <= steps; ++step) session.Step(step);
      // Two ranks in a ring: 2 (2-1)/2 = 1 x the gradient; 8 more bytes a step for the loss.
      if (world.rank() == 0) sent = session.recorder().Total("dp").bytes.value;
      if (world.rank() == 0) EXPECT_EQ(sent, steps * (gradient + 8));
    });
    return sent;
  };
  EXPECT_EQ(bytes(1, 12, 4), 4 * bytes(4, 48, 1));
}

}  // namespace
}  // namespace trireme
