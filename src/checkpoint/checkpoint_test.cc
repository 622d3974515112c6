#include "checkpoint/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "base/file.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/safetensors.h"
#include "testing/rank_world.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class CheckpointTest : public ::testing::Test {
 protected:
  CheckpointTest() : folder_(fs::temp_directory_path() / ("trireme-checkpoint-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~CheckpointTest() override { fs::remove_all(folder_); }

  // A tensor of linear indices cut into `ranks` runs of whole rows; uneven, and empty where there are more ranks than
  // rows.
  void Save(int ranks, int64_t step, const Shape& shape, int64_t keep = 0) const {
    const at::Tensor whole = at::arange(NumElements(shape), at::kDouble).view(shape);
    testing::RankWorld(ranks).Run([&](testing::Rank& rank) {
      const int64_t begin = shape[0] * rank.rank() / ranks, end = shape[0] * (rank.rank() + 1) / ranks;
      TensorPiece piece{"w", shape, {Shape(shape.size(), 0), shape}, whole.narrow(0, begin, end - begin)};
      piece.rectangle.offset[0] = begin;
      piece.rectangle.size[0] = end - begin;
      SaveCheckpoint(folder_, step, {piece}, {{"note", "x"}}, keep, rank.world);
    });
  }
  template <class Body>
  static std::string ErrorOf(Body body) {
    try {
      body();
    } catch (const Error& e) {
      return e.what();
    }
    return "no error";
  }
  const fs::path folder_;
};

TEST_F(CheckpointTest, AnyCutReadsBackIntoAnyOtherCut) {
  for (const Shape& shape : {Shape{10, 3}, Shape{5, 3}, Shape{1, 4}, Shape{7}}) {
    for (const int ranks : {1, 2, 3, 4}) {
      Save(ranks, ranks, shape);
      const CheckpointReader reader(*LatestCheckpoint(folder_));
      EXPECT_EQ(reader.step(), ranks);
      EXPECT_EQ(reader.ShapeOf("w"), shape);
      reader.VerifyChecksums();
      const at::Tensor whole = at::arange(NumElements(shape), at::kDouble).view(shape);
      for (const int parts : {1, 2, 3}) {
        for (int part = 0; part < parts; ++part) {
          Rectangle box{Shape(shape.size(), 0), shape};
          const size_t dim = shape.size() - 1;  // cut the other way
          box.offset[dim] = shape[dim] * part / parts;
          box.size[dim] = shape[dim] * (part + 1) / parts - box.offset[dim];
          const at::Tensor out = at::full(box.size, -1.0, at::kDouble);
          reader.Read("w", box, out);
          EXPECT_TRUE(out.equal(whole.narrow(static_cast<int64_t>(dim), box.offset[dim], box.size[dim])));
        }
      }
    }
    fs::remove_all(folder_);
  }
}

TEST_F(CheckpointTest, KeepsTheNewestAndLatestNeverDangles) {
  for (int64_t step = 1; step <= 5; ++step) {
    Save(2, step, {4, 2}, 2);
    EXPECT_TRUE(fs::exists(folder_ / "latest" / "manifest.json"));
    EXPECT_EQ(CheckpointReader(folder_ / "latest").step(), step);
  }
  EXPECT_FALSE(fs::exists(folder_ / "step-00000003"));
  EXPECT_TRUE(fs::exists(folder_ / "step-00000004"));
  Save(2, 5, {4, 2}, 2);  // the same step again
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ / "step-00000005");
}

TEST_F(CheckpointTest, WhatAKillLeftIsSkippedAndReplaced) {
  Save(2, 1, {4, 2});
  fs::create_directories(folder_ / "step-00000002.tmp");
  std::ofstream(folder_ / "step-00000002.tmp" / "rank-00000.safetensors") << "half";
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ / "step-00000001");
  Save(2, 2, {4, 2});
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ / "step-00000002");
  EXPECT_FALSE(fs::exists(folder_ / "step-00000002.tmp"));
  EXPECT_EQ(LatestCheckpoint(folder_ / "nowhere"), std::nullopt);
}

TEST_F(CheckpointTest, DamageIsNamedAndTheOneBeforeIsUsed) {
  Save(2, 1, {4, 2});
  Save(2, 2, {4, 2});
  const fs::path file = folder_ / "step-00000002" / "rank-00001.safetensors";
  std::string bytes = ReadFile(file);
  bytes.back() ^= 1;
  std::ofstream(file, std::ios::binary) << bytes;
  EXPECT_THAT(ErrorOf([&] { CheckpointReader(folder_ / "step-00000002").VerifyChecksums(); }),
              HasSubstr("expected checksum"));
  std::ofstream(file, std::ios::binary) << bytes.substr(1);
  EXPECT_THAT(ErrorOf([&] { CheckpointReader(folder_ / "step-00000002"); }),
              HasSubstr("rank-00001.safetensors: expected"));
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ / "step-00000001");
  fs::remove(file);
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ / "step-00000001");
}

TEST_F(CheckpointTest, BoxesMustPartitionTheTensor) {
  testing::RankWorld(2).Run([&](testing::Rank& rank) {
    const at::Tensor row = at::zeros({1, 2}, at::kFloat);
    const auto save = [&](int64_t offset) {
      SaveCheckpoint(folder_, 1, {{"w", {2, 2}, {{offset, 0}, {1, 2}}, row}}, {}, 0, rank.world);
    };
    EXPECT_THAT(ErrorOf([&] { save(0); }), HasSubstr("'w': boxes overlap"));
    EXPECT_THAT(ErrorOf([&] {
                  SaveCheckpoint(folder_, 1,
                                 rank.rank() == 0 ? std::vector<TensorPiece>{{"w", {2, 2}, {{0, 0}, {1, 2}}, row}}
                                                  : std::vector<TensorPiece>{},
                                 {}, 0, rank.world);
                }),
                HasSubstr("1 boxes cover 2 of the 4 elements"));
    save(rank.rank());
  });
  EXPECT_EQ(LatestCheckpoint(folder_), folder_ / "step-00000001");
}

TEST_F(CheckpointTest, AFolderThatCannotBeWrittenFailsOnAllRanks) {
  std::ofstream(folder_ / "file") << "";
  testing::RankWorld(2).Run([&](testing::Rank& rank) {
    EXPECT_THAT(ErrorOf([&] { SaveCheckpoint(folder_ / "file" / "below", 1, {}, {}, 0, rank.world); }),
                HasSubstr("rank 0"));
  });
}

TEST_F(CheckpointTest, HostileSafetensorsAreRefused) {
  const fs::path path = folder_ / "a.safetensors";
  WriteSafetensors(path, {{"x", at::arange(6, at::kFloat).view({2, 3})}, {"y", at::arange(2, at::kLong)}},
                   {{"format", "pt"}});
  const SafetensorsFile file(path);
  EXPECT_TRUE(file.View("x").equal(at::arange(6, at::kFloat).view({2, 3})));
  EXPECT_EQ(file.metadata().at("format"), "pt");
  const std::string good = ReadFile(path);
  for (size_t size = 0; size < good.size(); ++size) {
    std::ofstream(folder_ / "b", std::ios::binary) << good.substr(0, size);
    EXPECT_THROW(SafetensorsFile(folder_ / "b"), UserError) << size;
  }
  const auto header = [&](const std::string& json, size_t data) {
    const uint64_t length = json.size();
    std::ofstream(folder_ / "b", std::ios::binary)
        << std::string(reinterpret_cast<const char*>(&length), 8) << json << std::string(data, 'x');
    return ErrorOf([&] { SafetensorsFile{folder_ / "b"}; });
  };
  EXPECT_EQ(header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 4), "no error");
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
              HasSubstr("span 4 bytes, but F32 [2] takes 8"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[4611686018427387904,4],"data_offsets":[0,4]}})", 4),
              HasSubstr("too large"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4), HasSubstr("shape"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", 4), HasSubstr("'F31' is not known"));
  EXPECT_THAT(
      header(
          R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},"b":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})",
          4),
      HasSubstr("overlap"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8), HasSubstr("hole"));
  EXPECT_THAT(header(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})", 8),
              HasSubstr("4 bytes of data, but 8 follow"));
  EXPECT_THAT(header("[]", 0), HasSubstr("expected a JSON object"));
}

TEST_F(CheckpointTest, ReadsHuggingFaceFolders) {
  std::ofstream(folder_ / "config.json")
      << R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,
    "num_attention_heads":4,"num_key_value_heads":2,"vocab_size":10,"max_position_embeddings":32,"rms_norm_eps":1e-5,
    "rope_parameters":{"rope_theta":500.0,"rope_type":"default"},"tie_word_embeddings":true,"hidden_act":"silu"})";
  const ModelOptions model = ReadHuggingFaceConfig(folder_);
  EXPECT_EQ(model.kv_heads, 2);
  EXPECT_EQ(model.seq, 32);
  EXPECT_EQ(model.rope_theta, 500.0);
  EXPECT_TRUE(model.tied);
  std::ofstream(folder_ / "config.json") << R"({"model_type":"llama","hidden_act":"gelu"})";
  EXPECT_THAT(ErrorOf([&] { ReadHuggingFaceConfig(folder_); }), HasSubstr("'hidden_act': got \"gelu\""));
  std::ofstream(folder_ / "config.json")
      << R"({"model_type":"llama","hidden_size":8,"intermediate_size":12,"num_hidden_layers":2,"num_attention_heads":4,"vocab_size":10,"max_position_embeddings":32,"rope_scaling":{"rope_type":"llama3"}})";
  EXPECT_THAT(ErrorOf([&] { ReadHuggingFaceConfig(folder_); }), HasSubstr("llama3"));

  WriteSafetensors(folder_ / "one.safetensors", {{"a", at::arange(6, at::kFloat).view({3, 2})}}, {});
  WriteSafetensors(folder_ / "two.safetensors", {{"b", at::arange(2, at::kFloat)}}, {});
  std::ofstream(folder_ / "model.safetensors.index.json")
      << R"({"weight_map":{"a":"one.safetensors","b":"two.safetensors"}})";
  const auto weights = OpenHuggingFaceWeights(folder_);
  const at::Tensor out = at::empty({2, 1}, at::kDouble);
  weights->Read("a", {{1, 1}, {2, 1}}, out);
  EXPECT_EQ(out[0][0].item<double>(), 3);
  EXPECT_EQ(out[1][0].item<double>(), 5);
  EXPECT_THROW(weights->Read("c", {{0}, {1}}, out), UserError);
}

}  // namespace
}  // namespace trireme
