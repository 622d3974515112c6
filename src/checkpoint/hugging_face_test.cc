#include "checkpoint/hugging_face.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "checkpoint/safetensors.h"
#include "checkpoint/test_folder.h"

namespace trireme::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

nlohmann::json Config() {
  return {{"model_type", "llama"},    {"hidden_size", 64},
          {"intermediate_size", 160}, {"num_hidden_layers", 3},
          {"num_attention_heads", 8}, {"num_key_value_heads", 2},
          {"vocab_size", 1000},       {"max_position_embeddings", 512},
          {"rms_norm_eps", 1e-5},     {"rope_theta", 500000.0},
          {"rope_scaling", nullptr},  {"tie_word_embeddings", true},
          {"hidden_act", "silu"},     {"attention_bias", false},
          {"mlp_bias", false},        {"attention_dropout", 0.0}};
}

ModelOptions Read(const nlohmann::json& config) {
  const TestFolder folder;
  WriteText(folder / "config.json", config.dump());
  return ReadHuggingFaceConfig(folder.path());
}

TEST(HuggingFaceConfig, FieldsOfALlama) {
  const ModelOptions m = Read(Config());
  EXPECT_EQ(m.hidden, 64);
  EXPECT_EQ(m.ffn, 160);
  EXPECT_EQ(m.layers, 3);
  EXPECT_EQ(m.heads, 8);
  EXPECT_EQ(m.kv_heads, 2);
  EXPECT_EQ(m.vocab, 1000);
  EXPECT_EQ(m.seq, 512);
  EXPECT_EQ(m.head_dim, 8);  // 64 / 8
  EXPECT_EQ(m.norm_eps, 1e-5);
  EXPECT_EQ(m.rope_theta, 500000.0);
  EXPECT_TRUE(m.tied);
  EXPECT_FALSE(m.from.empty());
}

// transformers 5 writes rope_parameters; older files may lack what LlamaConfig has defaults for.
TEST(HuggingFaceConfig, NewerRopeAndDefaults) {
  nlohmann::json config = Config();
  config.erase("rope_theta");
  config["rope_parameters"] = {{"rope_theta", 250000}, {"rope_type", "default"}};
  config["head_dim"] = 16;
  EXPECT_EQ(Read(config).rope_theta, 250000.0);
  EXPECT_EQ(Read(config).head_dim, 16);
  for (const char* key : {"rope_parameters", "rms_norm_eps", "num_key_value_heads", "tie_word_embeddings"}) {
    config.erase(key);
  }
  const ModelOptions m = Read(config);
  EXPECT_EQ(m.rope_theta, 10000.0);
  EXPECT_EQ(m.norm_eps, 1e-6);
  EXPECT_EQ(m.kv_heads, 8);
  EXPECT_FALSE(m.tied);
}

TEST(HuggingFaceConfig, WhatIsNotComputedIsRefusedByFileAndField) {
  const std::pair<const char*, nlohmann::json> cases[] = {
      {"model_type", "qwen2"},
      {"hidden_act", "gelu"},
      {"attention_bias", true},
      {"mlp_bias", true},
      {"attention_dropout", 0.1},
      {"sliding_window", 4096},
      {"quantization_config", {{"bits", 4}}},
      {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8.0}}},
      {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
      {"rope_parameters", {{"rope_type", "yarn"}}},
      {"partial_rotary_factor", 0.5},
      {"hidden_size", 63},
      {"hidden_size", "64"},
      {"hidden_size", nullptr},
      {"num_hidden_layers", 0},
      {"num_hidden_layers", -1},
      {"num_key_value_heads", 3},
      {"rms_norm_eps", 0.0},
      {"rope_theta", "big"},
      {"tie_word_embeddings", 1},
  };
  for (const auto& [field, value] : cases) {
    nlohmann::json config = Config();
    config[field] = value;
    const std::string message = UserErrorOf([&] { Read(config); });
    EXPECT_THAT(message, HasSubstr("config.json")) << field;
    EXPECT_THAT(message, HasSubstr(field));
  }
}

TEST(HuggingFaceWeights, OneFileOrShardsWithAnIndex) {
  const TestFolder folder;
  const at::Tensor matrix = at::arange(12, at::TensorOptions(at::kBFloat16)).view({3, 4});
  const at::Tensor norm = at::arange(3, at::TensorOptions(at::kFloat));
  const auto check = [&] {
    const std::unique_ptr<TensorSource> source = OpenHuggingFaceWeights(folder.path());
    EXPECT_THAT(source->Names(), ElementsAre("matrix", "norm"));
    EXPECT_TRUE(source->Has("norm"));
    EXPECT_FALSE(source->Has("lm_head.weight"));
    EXPECT_EQ(source->ShapeOf("matrix"), (Shape{3, 4}));
    at::Tensor out = at::empty({2, 2}, at::TensorOptions(at::kFloat));
    source->Read("matrix", {{1, 2}, {2, 2}}, out);
    // Element (r, c) is 4 r + c: rows 1 and 2, columns 2 and 3.
    EXPECT_TRUE(out.flatten().equal(at::tensor({6.f, 7.f, 10.f, 11.f})));
    EXPECT_THAT(UserErrorOf([&] { source->Read("matrix", {{2, 0}, {2, 2}}, out); }), HasSubstr("matrix"));
    EXPECT_THAT(UserErrorOf([&] { source->ShapeOf("lm_head.weight"); }), HasSubstr("lm_head.weight"));
  };
  WriteSafetensors(folder / "model.safetensors", {{"matrix", matrix}, {"norm", norm}}, {{"format", "pt"}});
  check();
  std::filesystem::remove(folder / "model.safetensors");
  EXPECT_THAT(UserErrorOf([&] { OpenHuggingFaceWeights(folder.path()); }), HasSubstr("found neither"));

  WriteSafetensors(folder / "model-00001-of-00002.safetensors", {{"matrix", matrix}}, {});
  WriteSafetensors(folder / "model-00002-of-00002.safetensors", {{"norm", norm}}, {});
  nlohmann::json index;
  index["weight_map"] = {{"matrix", "model-00001-of-00002.safetensors"}, {"norm", "model-00002-of-00002.safetensors"}};
  WriteText(folder / "model.safetensors.index.json", index.dump());
  check();

  index["weight_map"]["norm"] = "../secret.safetensors";
  WriteText(folder / "model.safetensors.index.json", index.dump());
  EXPECT_THAT(UserErrorOf([&] { OpenHuggingFaceWeights(folder.path()); }), HasSubstr("../secret.safetensors"));
  index["weight_map"]["norm"] = "model-00001-of-00002.safetensors";  // which does not hold it
  WriteText(folder / "model.safetensors.index.json", index.dump());
  EXPECT_THAT(UserErrorOf([&] { OpenHuggingFaceWeights(folder.path()); }), HasSubstr("tensor 'norm' is missing"));
  index["weight_map"]["norm"] = "model-00003-of-00002.safetensors";
  WriteText(folder / "model.safetensors.index.json", index.dump());
  EXPECT_THAT(UserErrorOf([&] { OpenHuggingFaceWeights(folder.path()); }), HasSubstr("model-00003-of-00002"));
}

}  // namespace
}  // namespace trireme::testing
