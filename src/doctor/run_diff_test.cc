#include "doctor/run_diff.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class RunDiffTest : public ::testing::Test {
 protected:
  RunDiffTest() : folder_(fs::temp_directory_path() / ("trireme-diff-" + std::to_string(getpid()))) {
    fs::create_directories(A());
    fs::create_directories(B());
  }
  ~RunDiffTest() override { fs::remove_all(folder_); }
  fs::path A() const { return folder_ / "a"; }
  fs::path B() const { return folder_ / "b"; }
  static void Write(const fs::path& path, const std::string& text) {
    std::ofstream(path, std::ios::app) << text << '\n';
  }
  static void Step(const fs::path& run, int step, double loss, const std::string& data, const std::string& gradient,
                   double projection) {
    Write(run / "metrics.jsonl", fmt::format(R"({{"step":{},"loss":{},"grad_norm":1.0}})", step, loss));
    Write(
        run / "audit.jsonl",
        fmt::format(
            R"({{"step":{},"data":"{}","gradients":{{"w":{{"xxh3":"{}","norm":2.0,"projection":{}}}}},"parameters":{{}}}})",
            step, data, gradient, projection));
  }
  const fs::path folder_;
};

TEST_F(RunDiffTest, EqualRunsAreIdentical) {
  for (const fs::path& run : {A(), B()}) Step(run, 1, 2.5, "d", "g", 1);
  const RunDiff diff = DiffRuns(A(), B(), 0);
  EXPECT_FALSE(diff.first.has_value());
  EXPECT_TRUE(diff.audited);
  EXPECT_EQ(diff.steps, 1);
}

TEST_F(RunDiffTest, NamesTheFirstOfDataLossAndGradient) {
  for (const fs::path& run : {A(), B()}) Step(run, 1, 2.5, "d", "g", 1);
  Step(A(), 2, 2.5, "d", "g", 1);
  Step(B(), 2, 2.5, "d", "h", 1.5);
  const RunDiff gradient = DiffRuns(A(), B(), 0);
  ASSERT_TRUE(gradient.first.has_value());
  EXPECT_EQ(gradient.first->step, 2);
  EXPECT_EQ(gradient.first->kind, "gradient");
  EXPECT_EQ(gradient.first->tensor, "w");
  EXPECT_EQ(gradient.first->relative, 0.25);  // 0.5 of a norm of 2
  EXPECT_FALSE(DiffRuns(A(), B(), 0.3).first.has_value());

  Step(A(), 3, 2.5, "d", "g", 1);
  Step(B(), 3, 1.5, "d", "g", 1);
  const RunDiff loss = DiffRuns(A(), B(), 0.3);  // 1 / 2.5 = 0.4
  ASSERT_TRUE(loss.first.has_value());
  EXPECT_EQ(loss.first->kind, "loss");
  EXPECT_EQ(loss.first->step, 3);
  EXPECT_DOUBLE_EQ(loss.first->relative, 0.4);
}

TEST_F(RunDiffTest, DataComesBeforeWhatItCauses) {
  Step(A(), 1, 2.5, "d", "g", 1);
  Step(B(), 1, 2.0, "e", "h", 9);
  EXPECT_EQ(DiffRuns(A(), B(), 0).first->kind, "data");
}

TEST_F(RunDiffTest, DumpsGiveTheExactDifference) {
  Step(A(), 1, 2.5, "d", "g", 1);
  Step(B(), 1, 2.5, "d", "h", 1);
  const auto dump = [](const fs::path& run, double value) {
    fs::create_directories(run / "dumps" / "step-1");
    WriteSafetensors(run / "dumps" / "step-1" / "gradients.safetensors", {{"w", at::full({4}, value, at::kDouble)}},
                     {});
  };
  dump(A(), 2);
  dump(B(), 3);
  EXPECT_EQ(DiffRuns(A(), B(), 0).first->relative, 0.5);  // ||(1,1,1,1)|| / ||(2,2,2,2)||
}

TEST_F(RunDiffTest, FoldersThatAreNoRunsAreRefused) {
  EXPECT_THROW(DiffRuns(A(), B(), 0), UserError);
  Step(A(), 1, 1, "d", "g", 1);
  Step(B(), 2, 1, "d", "g", 1);
  EXPECT_THROW(DiffRuns(A(), B(), 0), UserError);
}

}  // namespace
}  // namespace trireme
