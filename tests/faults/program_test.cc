// What users of the command line may rely on: exit codes, messages, and that nothing starts when the input is wrong.

#include "testing/program_test.h"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

namespace trireme::testing {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

namespace {

struct WrongInput {
  const char* name;
  std::vector<std::string> words;
  std::vector<std::string> said;
};

class WrongInputTest : public ProgramTest, public ::testing::WithParamInterface<WrongInput> {};

TEST_P(WrongInputTest, EndsWithTwoAndSaysWhatWouldBeValid) {
  std::vector<std::string> words = {"train", WriteConfig("train: { steps: 3 }\n"), "--run-dir", Path("run")};
  words.insert(words.end(), GetParam().words.begin(), GetParam().words.end());
  const Outcome outcome = RunProgram(words);
  EXPECT_EQ(outcome.exit_code, 2) << outcome.output;
  for (const std::string& text : GetParam().said) EXPECT_THAT(outcome.output, HasSubstr(text));
  EXPECT_EQ(outcome.output.find("error:"), outcome.output.rfind("error:")) << "said once, not once a rank";
  EXPECT_FALSE(fs::exists(Path("run"))) << "something was created";
}

INSTANTIATE_TEST_SUITE_P(
    Each, WrongInputTest,
    ::testing::Values(
        WrongInput{"UnknownField", {"--set", "paralel.dp=2"}, {"paralel.dp", "did you mean parallel.dp"}},
        WrongInput{"WrongType", {"--set", "train.steps=many"}, {"train.steps", "'many'", "whole number"}},
        WrongInput{"HeadsOverTp",
                   {"--set", "model.heads=52", "--set", "model.hidden=416", "--set", "parallel.tp=8"},
                   {"parallel.tp: 8", "model.heads: 52"}},
        WrongInput{"KvHeadsOverTp",
                   {"--set", "model.heads=6", "--set", "model.hidden=48", "--set", "model.kv_heads=3"},
                   {"model.kv_heads: 3", "parallel.tp: 2"}},
        WrongInput{"FfnOverTp", {"--set", "model.ffn=3"}, {"model.ffn: 3", "use 2 or 4"}},
        WrongInput{"Batch",
                   {"--set", "batch.global=10", "--set", "batch.micro=2", "--set", "parallel.dp=3"},
                   {"10", "batch.micro 2", "parallel.dp 3", "use 6 or 12"}},
        WrongInput{"Ranks", {"--ranks", "3"}, {"--ranks: 3", "dp 2 x tp 2"}},
        WrongInput{"Pipeline", {"--set", "parallel.pp=2", "--set", "model.layers=2"}, {"parallel.pp: 2", "use pp: 1"}},
        WrongInput{"MissingText", {"--set", "data.text=[/no/such/file]"}, {"data.text", "/no/such/file"}},
        WrongInput{"MissingTokens",
                   {"--set", "data.text=[]", "--set", "data.tokens=/no/such/tokens"},
                   {"/no/such/tokens.idx"}},
        WrongInput{"MissingModel", {"--set", "model.from=/no/such/model"}, {"/no/such/model/config.json"}},
        WrongInput{"MissingMask", {"--set", "data.loss_mask=/no/such/mask"}, {"data.loss_mask", "/no/such/mask"}},
        WrongInput{"MissingCheckpoint", {"--resume", "/no/such/checkpoint"}, {"/no/such/checkpoint"}},
        WrongInput{"TooLittleText", {"--set", "model.seq=3000"}, {"batch.global", "model.seq 3000"}},
        WrongInput{"UnknownFlag", {"--rank", "4"}, {"--rank"}},
        WrongInput{"BackEnd", {"--backend", "nccl"}, {"--backend"}}),
    [](const auto& info) { return info.param.name; });

TEST_F(ProgramTest, AMissingConfigurationIsNamed) {
  const Outcome outcome = RunProgram({"train", Path("nothing.yaml")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr(Path("nothing.yaml")));
  EXPECT_EQ(RunProgram({"sail"}).exit_code, 2);
  EXPECT_EQ(RunProgram({"--help"}).exit_code, 0);
}

TEST_F(ProgramTest, ErrorsInTheFileHaveLineAndColumn) {
  const Outcome outcome = RunProgram({"train", WriteConfig("train: { steps: [3] }\n")});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("config.yaml:5:17: train.steps"));
}

TEST_F(ProgramTest, DryRunPrintsTheResolvedConfigurationAndCreatesNothing) {
  const Outcome outcome = RunProgram({"train", WriteConfig(), "--run-dir", Path("run"), "--dry-run"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("  micro: 2 "));  // 4 sequences over dp 2
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(ProgramTest, ARunIsNotOverwritten) {
  const std::vector<std::string> words = {"train", WriteConfig("train: { steps: 2 }\n"), "--run-dir", Path("run")};
  EXPECT_EQ(RunProgram(words).exit_code, 0);
  const auto before = Losses(Path("run"));
  const Outcome again = RunProgram(words);
  EXPECT_EQ(again.exit_code, 2);
  EXPECT_THAT(again.output, HasSubstr("--resume"));
  EXPECT_EQ(Losses(Path("run")), before);
}

TEST_F(ProgramTest, AGradientThatIsNotFiniteStopsOrSkipsByPolicy) {
  const std::string config =
      WriteConfig("train: { steps: 6 }\noptimizer: { name: sgd, lr: 1.0e+30, clip: 0, schedule: constant }\n");
  const Outcome stop = RunProgram({"train", config, "--run-dir", Path("stop")});
  EXPECT_EQ(stop.exit_code, 1);
  EXPECT_THAT(stop.output, HasSubstr("step 2: the gradient norm is"));
  EXPECT_EQ(RunProgram({"train", config, "--run-dir", Path("skip"), "--set", "optimizer.on_nan=skip"}).exit_code, 0);
  EXPECT_EQ(Losses(Path("skip")).size(), 6u);
}

TEST_F(ProgramTest, TheToolsAroundTrainingWork) {
  EXPECT_EQ(RunProgram({"data", "pack", Path("text"), "-o", Path("tokens")}).exit_code, 0);
  EXPECT_THAT(RunProgram({"data", "info", Path("tokens")}).output, HasSubstr("4000"));
  EXPECT_EQ(RunProgram({"train", WriteConfig("train: { steps: 2 }\n"), "--run-dir", Path("run")}).exit_code, 0);
  const std::string checkpoint = Path("run/checkpoints/step-00000002");
  EXPECT_THAT(RunProgram({"checkpoint", "info", checkpoint}).output, HasSubstr("model.embed_tokens.weight"));
  EXPECT_EQ(RunProgram({"checkpoint", "verify", checkpoint}).exit_code, 0);
  const std::vector<std::string> generate = {"generate", "--checkpoint", Path("run"), "--prompt", "ab",
                                             "--tokens", "20",           "--seed",    "3"};
  const Outcome text = RunProgram(generate);
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_EQ(text.output, RunProgram(generate).output);
  EXPECT_EQ(RunProgram({"doctor", "diff", Path("run"), Path("run")}).exit_code, 0);
  std::string bytes = ReadFile(checkpoint + "/rank-00000.safetensors");
  bytes.back() ^= 1;
  std::ofstream(checkpoint + "/rank-00000.safetensors", std::ios::binary) << bytes;
  const Outcome damaged = RunProgram({"checkpoint", "verify", checkpoint});
  EXPECT_EQ(damaged.exit_code, 3);
  EXPECT_THAT(damaged.output, HasSubstr("rank-00000.safetensors"));
}

TEST_F(ProgramTest, MeshPrintsOneJsonDocument) {
  const Outcome outcome = RunProgram({"mesh", WriteConfig(), "--json"});
  EXPECT_EQ(outcome.exit_code, 0);
  const auto json = nlohmann::json::parse(outcome.output);
  EXPECT_EQ(json["world"], 4);
  EXPECT_EQ(json["axes"]["dp"]["groups"], nlohmann::json::parse("[[0,2],[1,3]]"));
}

}  // namespace
}  // namespace trireme::testing
