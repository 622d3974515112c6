// A run that was ended at any moment and resumed is, to the last digit, the run that nobody disturbed.

#include <signal.h>

#include <set>
#include <thread>

#include "base/philox.h"
#include "testing/program_test.h"

namespace trireme::testing {
namespace {

using ResumeTest = ProgramTest;

TEST_F(ResumeTest, ASignalWritesACheckpointAndTheResumedRunIsTheSame) {
  const std::string config = WriteConfig("train: { steps: 3000 }\ncheckpoint: { every: 1000, keep: 2 }\n");
  ASSERT_EQ(RunProgram({"train", config, "--run-dir", Path("whole")}).exit_code, 0);
  for (const int signal : {SIGTERM, SIGINT}) {
    const std::string run = Path("run-" + std::to_string(signal));
    Process process({"train", config, "--run-dir", run});
    while (!std::filesystem::exists(run + "/metrics.jsonl") || Losses(run).size() < 20)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    process.Kill(signal);
    const Outcome outcome = process.Wait();
    EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
    const auto so_far = Losses(run);
    EXPECT_LT(so_far.size(), 3000u);
    EXPECT_TRUE(std::filesystem::exists(run + "/checkpoints/latest/manifest.json"));
    EXPECT_EQ(RunProgram({"train", config, "--run-dir", run, "--resume"}).exit_code, 0);
    EXPECT_EQ(Losses(run), Losses(Path("whole")));
  }
}

// Every step writes a checkpoint: most kills fall into the writing of one.
TEST_F(ResumeTest, TwentyKillsLeaveTheSameRun) {
  const std::string config = WriteConfig("train: { steps: 250 }\ncheckpoint: { every: 1, keep: 2 }\n");
  ASSERT_EQ(RunProgram({"train", config, "--run-dir", Path("whole")}).exit_code, 0);
  const Philox random(11, "kill times");
  const std::string run = Path("run");
  int kills = 0;
  for (uint64_t trial = 0; kills < 20; ++trial) {
    ASSERT_LT(trial, 60u) << "the run ends before it can be killed often enough";
    Process process({"train", config, "--run-dir", run, "--resume"});
    // Starting takes some hundred milliseconds: from the start of the process to well into the steps.
    std::this_thread::sleep_for(std::chrono::milliseconds(150 + static_cast<int>(500 * random.Uniform(trial))));
    process.Kill(SIGKILL);
    const Outcome outcome = process.Wait();
    if (outcome.exit_code == 0) {
      // Trained to its end: once more from the start.
      std::filesystem::remove_all(run);
      continue;
    }
    ASSERT_EQ(outcome.signal, SIGKILL) << outcome.output;
    ++kills;
  }
  const Outcome last = RunProgram({"train", config, "--run-dir", run, "--resume"});
  ASSERT_EQ(last.exit_code, 0) << last.output;
  EXPECT_EQ(Losses(run), Losses(Path("whole")));  // each step once, each digit
}

}  // namespace
}  // namespace trireme::testing
