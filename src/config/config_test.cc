#include "config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace trireme {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

template <class Body>
std::string ErrorOf(Body body) {
  try {
    body();
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}

std::string ParseError(const char* yaml) {
  return ErrorOf([&] { ParseConfig(yaml, "a.yaml"); });
}

Config Valid() {
  Config config;
  config.data.synthetic = true;
  return config;
}

template <class Change>
std::string ResolveError(Change change, int ranks = 0) {
  Config config = Valid();
  change(config);
  return ErrorOf([&] { ResolveConfig(config, ranks); });
}

TEST(Parse, EmptyIsAllDefaults) {
  EXPECT_EQ(PrintConfig(ParseConfig("", "a.yaml")), PrintConfig(Config()));
  EXPECT_EQ(PrintConfig(ParseConfig("model:\n", "a.yaml")), PrintConfig(Config()));
}

TEST(Parse, ReadsBackWhatItPrints) {
  Config config = Valid();
  config.seed = 18446744073709551615u;
  config.optimizer.lr = 0.1 + 0.2;
  config.data.text = {"a b.txt", "no", "quote \" and \\", "line\nbreak", "null", "1e3"};
  config.parallel.order = {"tp", "dp"};
  config.log.dump.steps = {1, 20};
  const std::string printed = PrintConfig(config);
  const Config read = ParseConfig(printed, "printed");
  EXPECT_EQ(PrintConfig(read), printed);
  EXPECT_EQ(read.data.text, config.data.text);
  EXPECT_EQ(read.optimizer.lr, config.optimizer.lr);
  EXPECT_EQ(read.seed, config.seed);
}

TEST(Parse, ErrorsNamePlaceFieldAndWhatIsValid) {
  EXPECT_EQ(ParseError("seed: 1\nmodel:\n  hiden: 4\n"), "a.yaml:3:3: unknown field model.hiden; did you mean hidden?");
  EXPECT_EQ(ParseError("model: { layers: many }"), "a.yaml:1:18: model.layers: expected a whole number, got 'many'");
  EXPECT_EQ(ParseError("model: { layers: 1.5 }"), "a.yaml:1:18: model.layers: expected a whole number, got '1.5'");
  EXPECT_EQ(ParseError("model: { layers: [1] }"), "a.yaml:1:18: model.layers: expected a whole number, got a list");
  EXPECT_EQ(ParseError("model: { tied: 1 }"), "a.yaml:1:16: model.tied: expected true or false, got '1'");
  EXPECT_EQ(ParseError("seed: -1"), "a.yaml:1:7: seed: expected a whole number of at least 0, got '-1'");
  EXPECT_EQ(ParseError("model: { layers: 99999999999999999999 }"),
            "a.yaml:1:18: model.layers: expected a whole number, got '99999999999999999999'");
  EXPECT_EQ(ParseError("optimizer: { lr: .nan }"), "a.yaml:1:18: optimizer.lr: expected a number, got '.nan'");
  EXPECT_EQ(ParseError("optimizer: { lr: nan }"), "a.yaml:1:18: optimizer.lr: expected a number, got 'nan'");
  EXPECT_EQ(ParseError("data: { text: a.txt }"), "a.yaml:1:15: data.text: expected a list [..], got 'a.txt'");
  EXPECT_EQ(ParseError("optimizer: { betas: [0.9, x] }"),
            "a.yaml:1:27: optimizer.betas[1]: expected a number, got 'x'");
  EXPECT_EQ(ParseError("model: 4"), "a.yaml:1:8: model: expected a mapping of fields");
  EXPECT_EQ(ParseError("- a"), "a.yaml:1:1: the file: expected a mapping of fields");
  EXPECT_EQ(ParseError("seed: 1\nseed: 2"), "a.yaml:2:1: seed is given twice");
  EXPECT_THAT(ParseError("model: { layers: 1"), HasSubstr("a.yaml:1:"));
  EXPECT_THAT(ParseError("zzzzzzzz: 1"), HasSubstr("known: seed, model"));
}

TEST(Set, TakesAnyPathAsYaml) {
  Config config;
  SetField(config, "parallel.tp=4");
  SetField(config, "data.text=[a.txt, b.txt]");
  SetField(config, "log.dump.steps=[3]");
  SetField(config, "seed=7");
  EXPECT_EQ(config.parallel.tp, 4);
  EXPECT_EQ(config.data.text, (std::vector<std::string>{"a.txt", "b.txt"}));
  EXPECT_EQ(config.log.dump.steps, std::vector<int64_t>{3});
  EXPECT_EQ(config.seed, 7u);
  EXPECT_THAT(ErrorOf([&] { SetField(config, "paralel.tp=4"); }), HasSubstr("did you mean parallel.tp"));
  EXPECT_THAT(ErrorOf([&] { SetField(config, "tp=4"); }), HasSubstr("did you mean parallel.tp"));
  EXPECT_THAT(ErrorOf([&] { SetField(config, "parallel.tp"); }), HasSubstr("path=value"));
  EXPECT_THAT(ErrorOf([&] { SetField(config, "parallel.tp=two"); }),
              HasSubstr("parallel.tp: expected a whole number, got 'two'"));
  EXPECT_THAT(ErrorOf([&] { SetField(config, "model=4"); }), HasSubstr("unknown field model"));
}

TEST(Resolve, FillsWhatIsDerived) {
  Config config = Valid();
  config.model.hidden = 96;
  config.model.heads = 4;
  config.parallel.tp = 2;
  config.parallel.pp = 2;
  config.parallel.dp = 0;
  ResolveConfig(config, 8);
  EXPECT_EQ(config.parallel.dp, 2);  // 8 ranks / (2 x 2)
  EXPECT_EQ(config.model.kv_heads, 4);
  EXPECT_EQ(config.model.head_dim, 24);
  EXPECT_EQ(config.model.ffn, 256);  // 8/3 x 96
  EXPECT_EQ(config.batch.micro, 4);  // 8 sequences over dp 2
  EXPECT_THAT(ErrorOf([&] { CheckTrainable(config); }), HasSubstr("parallel.pp: 2"));
}

TEST(Resolve, ImpossibleShapesNameBothFields) {
  EXPECT_THAT(ResolveError([](Config& c) {
                c.model.hidden = 104 * 4;
                c.model.heads = 52;
                c.parallel.tp = 8;
              }),
              AllOf(HasSubstr("model.heads: 52"), HasSubstr("parallel.tp: 8")));
  EXPECT_THAT(ResolveError([](Config& c) {
                c.model.hidden = 66;
                c.model.heads = 33;
                c.model.kv_heads = 2;
              }),
              AllOf(HasSubstr("model.kv_heads: 2"), HasSubstr("model.heads: 33"), HasSubstr("1, 3, 11, 33")));
  EXPECT_THAT(ResolveError([](Config& c) {
                c.model.hidden = 100;
                c.model.heads = 8;
              }),
              AllOf(HasSubstr("model.hidden: 100"), HasSubstr("model.heads: 8")));
  EXPECT_THAT(ResolveError([](Config& c) {
                c.model.hidden = 48;
                c.model.heads = 6;
                c.model.kv_heads = 3;
                c.parallel.tp = 2;
              }),
              AllOf(HasSubstr("model.kv_heads: 3"), HasSubstr("parallel.tp: 2")));
  EXPECT_THAT(ResolveError([](Config& c) {
                c.model.ffn = 3;
                c.parallel.tp = 2;
              }),
              AllOf(HasSubstr("model.ffn: 3"), HasSubstr("use 2 or 4")));
  // Two key/value heads over four ranks are replicated.
  EXPECT_EQ(ResolveError([](Config& c) {
              c.model.heads = 8;
              c.model.kv_heads = 2;
              c.parallel.tp = 4;
            }),
            "no error");
}

TEST(Resolve, TheWorldMustFit) {
  const auto grid = [](Config& c) {
    c.parallel.tp = 2;
    c.parallel.pp = 2;
  };
  EXPECT_THAT(ResolveError(grid, 3), AllOf(HasSubstr("--ranks: 3"), HasSubstr("dp 1 x tp 2 x pp 2 x cp 1 = 4")));
  EXPECT_EQ(ResolveError(grid, 4), "no error");
  EXPECT_THAT(ResolveError(
                  [&](Config& c) {
                    grid(c);
                    c.parallel.dp = 0;
                  },
                  6),
              AllOf(HasSubstr("--ranks: 6"), HasSubstr("use 4 or 8")));
  EXPECT_THAT(ResolveError([&](Config& c) {
                grid(c);
                c.parallel.order = {"tp", "dp"};
              }),
              HasSubstr("leaves out pp"));
  EXPECT_THAT(ResolveError([](Config& c) { c.parallel.order = {"tp", "tp", "dp", "pp"}; }), HasSubstr("twice"));
}

TEST(Resolve, TheBatchMustDivide) {
  EXPECT_EQ(ResolveError([](Config& c) {
              c.batch.global = 10;
              c.batch.micro = 2;
              c.parallel.dp = 3;
            }),
            "batch.global: 10 is not a multiple of batch.micro 2 x parallel.dp 3 = 6; use 6 or 12");
}

TEST(Resolve, TellsAllFindingsAtOnce) {
  const std::string text = ResolveError([](Config& c) {
    c.optimizer.name = "adam";
    c.optimizer.betas = {0.9};
    c.data.validation = 1;
    c.train.steps = 0;
    c.precision.compute = "fp8";
  });
  for (const char* field : {"optimizer.name: 'adam'; expected adamw or sgd", "optimizer.betas", "data.validation: 1",
                            "train.steps: 0", "precision.compute: 'fp8'"}) {
    EXPECT_THAT(text, HasSubstr(field));
  }
  EXPECT_THAT(ResolveError([](Config& c) { c.data.synthetic = false; }), HasSubstr("0 sources"));
  EXPECT_THAT(ResolveError([](Config& c) { c.data.tokens = "x"; }), HasSubstr("2 sources"));
}

TEST(Unused, SettingsWithoutEffectAreNamed) {
  Config config = Valid();
  EXPECT_TRUE(UnusedSettings(config).empty());
  config.pipeline.schedule = "gpipe";
  config.optimizer.name = "sgd";
  config.optimizer.betas = {0.8, 0.9};
  EXPECT_EQ(UnusedSettings(config).size(), 2u);
}

}  // namespace
}  // namespace trireme
