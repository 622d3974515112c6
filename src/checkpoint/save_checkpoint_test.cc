#include "checkpoint/checkpoint.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <thread>

#include "base/hash.h"
#include "base/philox.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/test_folder.h"
#include "testing/rank_world.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Rows of rank `r` when `ranks` share them, the last ones going without.
std::pair<int64_t, int64_t> RowsOf(int64_t rows, int ranks, int r) {
  const int64_t each = (rows + ranks - 1) / ranks, begin = std::min(rows, r * each);
  return {begin, std::min(rows, begin + each) - begin};
}

TensorPiece RowPiece(const std::string& name, const at::Tensor& whole, int ranks, int r) {
  const auto [begin, rows] = RowsOf(whole.size(0), ranks, r);
  TensorPiece piece{
      name, whole.sizes().vec(), {Shape(whole.dim(), 0), whole.sizes().vec()}, whole.narrow(0, begin, rows)};
  piece.rectangle.offset[0] = begin;
  piece.rectangle.size[0] = rows;
  return piece;
}

// Element i is i.
at::Tensor LinearIndex(const Shape& shape, at::ScalarType type = at::kFloat) {
  return at::arange(NumElements(shape), at::TensorOptions(type)).view(shape);
}

void SaveLinear(const fs::path& folder, int64_t step, int ranks, int64_t keep) {
  RankWorld(ranks).Run([&](Rank& rank) {
    SaveCheckpoint(folder, step, {RowPiece("w", LinearIndex({5, 4}), ranks, rank.rank())}, {{"tokens", step * 10}},
                   keep, rank.world);
  });
}

at::Tensor ReadBox(const TensorSource& source, const std::string& name, const Rectangle& box,
                   at::ScalarType type = at::kFloat) {
  at::Tensor out = at::full(box.size, -1, at::TensorOptions(type));
  source.Read(name, box, out);
  return out;
}

std::vector<std::string> FilesIn(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string ErrorOf(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    return error.what();
  }
  ADD_FAILURE() << "expected an Error";
  return "";
}

// Every bit pattern counts, NaNs too; [5, 4] over 4 ranks are rows 2, 2, 1 and an empty box.
TEST(Checkpoint, RoundTripIsBitEqualOnAnyNumberOfRanks) {
  at::Tensor bits = at::empty({5, 4}, at::TensorOptions(at::kInt));
  for (int64_t i = 0; i < 20; ++i) {
    bits.mutable_data_ptr<int32_t>()[i] = static_cast<int32_t>(Philox(1, "bits").Bits64(static_cast<uint64_t>(i)));
  }
  const at::Tensor w = bits.view(at::kFloat), wide = LinearIndex({4, 6}, at::kDouble).div(7.0);
  for (const int ranks : {1, 2, 4}) {
    const TestFolder folder;
    RankWorld(ranks).Run([&](Rank& rank) {
      const int r = rank.rank();
      std::vector<TensorPiece> pieces = {RowPiece("w", w, ranks, r)};
      // Columns of the transpose: strided data.
      TensorPiece turned = RowPiece("wide", wide.t(), ranks, r);
      turned = {"wide", {4, 6}, {{0, turned.rectangle.offset[0]}, {4, turned.rectangle.size[0]}}, turned.local.t()};
      pieces.push_back(turned);
      if (r == ranks - 1) pieces.push_back({"scalar", {}, {{}, {}}, at::full({}, 3.5)});
      if (r == 0) pieces.push_back({"none", {0, 3}, {{0, 0}, {0, 3}}, at::zeros({0, 3})});
      SaveCheckpoint(folder.path(), 7, pieces, {{"tokens", 70}}, 2, rank.world);
      EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "step-00000007");
    });
    const CheckpointReader reader(folder / "step-00000007");
    reader.VerifyChecksums();
    EXPECT_EQ(reader.step(), 7);
    EXPECT_EQ(reader.state(), (nlohmann::json{{"tokens", 70}}));
    EXPECT_THAT(reader.Names(), ElementsAre("none", "scalar", "w", "wide"));
    EXPECT_EQ(reader.ShapeOf("wide"), (Shape{4, 6}));
    EXPECT_EQ(reader.ShapeOf("none"), (Shape{0, 3}));
    EXPECT_TRUE(ReadBox(reader, "w", {{0, 0}, {5, 4}}).view(at::kInt).equal(bits)) << ranks;
    EXPECT_TRUE(ReadBox(reader, "wide", {{0, 0}, {4, 6}}, at::kDouble).equal(wide)) << ranks;
    EXPECT_EQ(ReadBox(reader, "scalar", {{}, {}}).item<float>(), 3.5f);
    EXPECT_EQ(ReadBox(reader, "none", {{0, 0}, {0, 3}}).numel(), 0);
  }
}

TEST(Checkpoint, ReadsAnyLayoutFromAnyOther) {
  const TestFolder folder;
  const at::Tensor whole = LinearIndex({7, 6});
  RankWorld(2).Run(
      [&](Rank& rank) { SaveCheckpoint(folder.path(), 1, {RowPiece("w", whole, 2, rank.rank())}, {}, 0, rank.world); });
  const CheckpointReader reader(*LatestCheckpoint(folder.path()));
  EXPECT_TRUE(ReadBox(reader, "w", {{0, 0}, {7, 6}}).equal(whole));  // 2 -> 1
  for (int r = 0; r < 3; ++r) {                                      // 2 -> 3, rows and columns
    const auto [row, rows] = RowsOf(7, 3, r);
    EXPECT_TRUE(ReadBox(reader, "w", {{row, 0}, {rows, 6}}).equal(whole.narrow(0, row, rows)));
    const auto [column, columns] = RowsOf(6, 3, r);
    EXPECT_TRUE(ReadBox(reader, "w", {{0, column}, {7, columns}}, at::kDouble)
                    .equal(whole.narrow(1, column, columns).to(at::kDouble)));
  }
  // The box across the cut between rows 3 and 4, into a strided place: element (r, c) is 6 r + c.
  at::Tensor place = at::zeros({2, 2}).t();
  reader.Read("w", {{3, 4}, {2, 2}}, place);
  EXPECT_EQ(place[0][0].item<float>(), 22.f);
  EXPECT_EQ(place[0][1].item<float>(), 23.f);
  EXPECT_EQ(place[1][0].item<float>(), 28.f);
  EXPECT_EQ(place[1][1].item<float>(), 29.f);

  EXPECT_THAT(UserErrorOf([&] { ReadBox(reader, "w", {{6, 0}, {2, 6}}); }), HasSubstr("tensor 'w'"));
  EXPECT_THAT(UserErrorOf([&] { ReadBox(reader, "w", {{0}, {7}}); }), HasSubstr("tensor 'w'"));
  EXPECT_THAT(UserErrorOf([&] { ReadBox(reader, "v", {{0}, {7}}); }), HasSubstr("tensor 'v' is missing"));
}

// Two ranks hold gate and up interleaved in one buffer: [gate rows of the rank | up rows of the rank]. Gate row i is
// labelled 1000 + i, up row i 2000 + i; on disk the two must come apart in order.
TEST(Checkpoint, FusedSwiGluRowsKeepTheirPlaces) {
  const TestFolder folder;
  RankWorld(2).Run([&](Rank& rank) {
    const int64_t r = rank.rank();
    const at::Tensor rows = at::arange(3 * r, 3 * r + 3, at::TensorOptions(at::kFloat)).view({3, 1}).expand({3, 2});
    const at::Tensor fused = at::cat({rows.add(1000), rows.add(2000)});
    SaveCheckpoint(folder.path(), 1,
                   {{"gate", {6, 2}, {{3 * r, 0}, {3, 2}}, fused.narrow(0, 0, 3)},
                    {"up", {6, 2}, {{3 * r, 0}, {3, 2}}, fused.narrow(0, 3, 3)}},
                   {}, 0, rank.world);
  });
  const CheckpointReader reader(*LatestCheckpoint(folder.path()));
  const at::Tensor labels = at::arange(6, at::TensorOptions(at::kFloat)).view({6, 1}).expand({6, 2});
  EXPECT_TRUE(ReadBox(reader, "gate", {{0, 0}, {6, 2}}).equal(labels.add(1000)));
  EXPECT_TRUE(ReadBox(reader, "up", {{0, 0}, {6, 2}}).equal(labels.add(2000)));
}

// A flat shard that begins and ends inside rows is three boxes of one tensor on one rank.
TEST(Checkpoint, ARankMayHoldSeveralBoxesOfATensor) {
  const TestFolder folder;
  const at::Tensor whole = LinearIndex({3, 4});
  RankWorld(1).Run([&](Rank& rank) {
    SaveCheckpoint(folder.path(), 1,
                   {{"w", {3, 4}, {{0, 0}, {1, 2}}, whole.narrow(0, 0, 1).narrow(1, 0, 2)},
                    {"w", {3, 4}, {{0, 2}, {1, 2}}, whole.narrow(0, 0, 1).narrow(1, 2, 2)},
                    {"w", {3, 4}, {{1, 0}, {2, 4}}, whole.narrow(0, 1, 2)},
                    {"w#1", {2}, {{0}, {2}}, at::full({2}, 9.f)}},  // a name that a second box must not take
                   {}, 0, rank.world);
  });
  const CheckpointReader reader(*LatestCheckpoint(folder.path()));
  EXPECT_TRUE(ReadBox(reader, "w", {{0, 0}, {3, 4}}).equal(whole));
  EXPECT_TRUE(ReadBox(reader, "w#1", {{0}, {2}}).equal(at::full({2}, 9.f)));
  const SafetensorsFile file(folder / "step-00000001/rank-00000.safetensors");
  EXPECT_EQ(file.metadata().at("DCP_VERSION"), "1.0");
  EXPECT_EQ(nlohmann::json::parse(file.metadata().at("DCP_SHARDING_INFO")),
            (nlohmann::json{{"w", {{"saved_offsets", {0, 0}}}},
                            {"w#2", {{"saved_offsets", {0, 2}}}},
                            {"w#3", {{"saved_offsets", {1, 0}}}},
                            {"w#1", {{"saved_offsets", {0}}}}}));
}

TEST(Checkpoint, BoxesThatDoNotPartitionAreRefusedOnAllRanks) {
  const TestFolder folder;
  SaveLinear(folder.path(), 1, 2, 2);
  struct Case {
    std::function<std::vector<TensorPiece>(int rank)> pieces;
    std::string message;
  };
  const at::Tensor t = at::zeros({4, 2}), half = at::zeros({2, 2});
  const Case cases[] = {
      {[&](int r) {
         return std::vector<TensorPiece>{{"norm", {4, 2}, {{0, 0}, {4, 2}}, t}};
       },
       "boxes overlap"},
      {[&](int r) {
         return std::vector<TensorPiece>{{"norm", {4, 2}, {{r, 0}, {2, 2}}, half}};
       },
       "boxes overlap"},
      {[&](int r) {
         return std::vector<TensorPiece>{{"norm", {8, 2}, {{r * 4, 0}, {2, 2}}, half}};
       },
       "2 boxes cover 8 of the 16 elements"},
      {[&](int r) {
         return std::vector<TensorPiece>{{"norm", {4 + r, 2}, {{r * 2, 0}, {2, 2}}, half}};
       },
       "rank 1 has F32 [5, 2], a rank before it has F32 [4, 2]"},
      {[&](int r) {
         return std::vector<TensorPiece>{{"norm", {4, 2}, {{r * 3, 0}, {2, 2}}, half}};
       },
       "rank 1: tensor 'norm': box offset [3, 0] size [2, 2] lies outside"},
      {[&](int r) {
         return std::vector<TensorPiece>{{"norm", {4, 2}, {{r * 2, 0}, {2, 2}}, r == 1 ? t : half}};
       },
       "rank 1: tensor 'norm': its box has size [2, 2], but the data has shape [4, 2]"},
  };
  for (const Case& c : cases) {
    RankWorld(2).Run([&](Rank& rank) {
      const std::string message =
          ErrorOf([&] { SaveCheckpoint(folder.path(), 2, c.pieces(rank.rank()), {}, 2, rank.world); });
      EXPECT_THAT(message, HasSubstr(c.message));
      EXPECT_THAT(message, HasSubstr("tensor 'norm'"));
    });
    EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000001"));
  }
}

// A limit on file sizes stands for a full disk: rank 1 alone writes more than it.
TEST(Checkpoint, ARankThatCannotWriteFailsAllAndLeavesEarlierCheckpoints) {
  const TestFolder folder;
  SaveLinear(folder.path(), 1, 2, 2);
  rlimit before;
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{256 * 1024, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  RankWorld(3).Run([&](Rank& rank) {
    const int64_t rows = rank.rank() == 1 ? 1 << 20 : 1;
    const TensorPiece piece{fmt::format("w{}", rank.rank()), {rows}, {{0}, {rows}}, at::zeros({rows})};
    const std::string message = ErrorOf([&] { SaveCheckpoint(folder.path(), 2, {piece}, {}, 2, rank.world); });
    EXPECT_THAT(message, HasSubstr("rank 1: cannot write " + (folder / "step-00000002.tmp/rank-00001").string()));
    EXPECT_THAT(message, HasSubstr(fmt::format("errno {}", EFBIG)));
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000001"));
  EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "step-00000001");
  SaveLinear(folder.path(), 2, 2, 2);
  EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "step-00000002");
}

class DamagedCheckpoint : public ::testing::Test {
 protected:
  DamagedCheckpoint() {
    SaveLinear(folder_.path(), 1, 2, 0);
    SaveLinear(folder_.path(), 2, 2, 0);
  }
  TestFolder folder_;
  const fs::path newest_ = folder_ / "step-00000002", shard_ = newest_ / "rank-00001.safetensors";
};

TEST_F(DamagedCheckpoint, AFlippedByteIsFoundByTheChecksum) {
  std::string text = ReadFile(shard_);
  text.back() = static_cast<char>(text.back() ^ 1);
  WriteText(shard_, text);
  const CheckpointReader reader(newest_);
  const std::string message = UserErrorOf([&] { reader.VerifyChecksums(); });
  EXPECT_THAT(message, HasSubstr(shard_.string() + ": expected checksum "));
  EXPECT_THAT(message, HasSubstr(HashText(Hash64(MappedFile(shard_).bytes()))));
}

TEST_F(DamagedCheckpoint, ATruncatedFileIsRefusedAndSkipped) {
  const auto bytes = fs::file_size(shard_);
  fs::resize_file(shard_, bytes - 1);
  EXPECT_THAT(UserErrorOf([&] { CheckpointReader{newest_}; }),
              HasSubstr(fmt::format("{}: expected {} bytes, as the manifest says, found {}", shard_.string(), bytes,
                                    bytes - 1)));
  EXPECT_EQ(LatestCheckpoint(folder_.path()), folder_ / "step-00000001");
}

TEST_F(DamagedCheckpoint, AMissingShardIsRefusedAndSkipped) {
  fs::remove(shard_);
  EXPECT_THAT(UserErrorOf([&] { CheckpointReader{newest_}; }), HasSubstr(shard_.string()));
  EXPECT_EQ(LatestCheckpoint(folder_.path()), folder_ / "step-00000001");
}

TEST_F(DamagedCheckpoint, AManifestThatLiesIsRefusedByField) {
  const fs::path path = newest_ / "manifest.json";
  const nlohmann::json good = nlohmann::json::parse(ReadFile(path));
  const std::pair<std::function<void(nlohmann::json&)>, const char*> cases[] = {
      {[](auto& m) { m["format"] = "zip"; }, "field 'format'"},
      {[](auto& m) { m["version"] = 2; }, "field 'version': this program reads 1, got 2"},
      {[](auto& m) { m.erase("step"); }, "field 'step' is missing"},
      {[](auto& m) { m["step"] = -1; }, "field 'step'"},
      {[](auto& m) { m["tensors"]["w"]["boxes"].erase(0); }, "tensor 'w': 1 boxes cover 8 of the 20"},
      {[](auto& m) {
         m["tensors"]["w"]["boxes"][1]["offset"] = {2, 0};
       },
       "tensor 'w': boxes overlap"},
      {[](auto& m) {
         m["tensors"]["w"]["boxes"][0]["size"] = {9, 4};
       },
       "tensor 'w': box offset [0, 0] size [9, 4]"},
      {[](auto& m) { m["tensors"]["w"]["boxes"][0]["file"] = "x"; }, "file 'x' is not listed"},
      {[](auto& m) {
         m["tensors"]["w"]["shape"] = {uint64_t{1} << 40, uint64_t{1} << 40};
       },
       "too large"},
      {[](auto& m) { m["files"]["../x"] = m["files"]["rank-00000.safetensors"]; }, "'../x'"},
  };
  for (const auto& [change, message] : cases) {
    nlohmann::json bad = good;
    change(bad);
    WriteText(path, bad.dump());
    const std::string found = UserErrorOf([&] { CheckpointReader{newest_}; });
    EXPECT_THAT(found, HasSubstr(message));
    EXPECT_THAT(found, HasSubstr(path.string()));
  }
  // A manifest that agrees with itself but not with the file.
  nlohmann::json bad = good;
  bad["tensors"]["w"]["dtype"] = "F64";
  WriteText(path, bad.dump());
  const CheckpointReader reader(newest_);
  EXPECT_THAT(UserErrorOf([&] {
                ReadBox(reader, "w", {{0, 0}, {5, 4}});
              }),
              HasSubstr("tensor 'w': expected F64 [3, 4], as the manifest says, found F32 [3, 4]"));
}

// What a killed process leaves: a partial folder, at any stage of being written.
TEST(CheckpointFolder, RemainsOfAKilledSaveAreSkippedAndThenRemoved) {
  const TestFolder folder;
  EXPECT_EQ(LatestCheckpoint(folder.path()), std::nullopt);
  EXPECT_EQ(LatestCheckpoint(folder / "nowhere"), std::nullopt);
  SaveLinear(folder.path(), 1, 2, 2);
  fs::copy(folder / "step-00000001", folder / "step-00000002.tmp");  // complete but not yet named
  fs::create_directory(folder / "step-00000003.tmp");
  WriteText(folder / "step-00000003.tmp/rank-00000.safetensors", "half");
  fs::create_directory(folder / "step-00000004");  // by somebody else
  EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "step-00000001");
  SaveLinear(folder.path(), 3, 2, 2);
  EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "step-00000003");
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000001", "step-00000003", "step-00000004"));
}

TEST(CheckpointFolder, KeepsTheNewestAndLatestNeverDangles) {
  const TestFolder folder;
  SaveLinear(folder.path(), 1, 2, 2);
  std::atomic<bool> stop = false;
  std::atomic<int> looks = 0, misses = 0;
  std::thread watcher([&] {
    while (!stop) {
      ++looks;
      if (!fs::exists(folder / "latest/manifest.json")) ++misses;
    }
  });
  for (int64_t step = 2; step <= 6; ++step) {
    SaveLinear(folder.path(), step, 2, 2);
    EXPECT_EQ(fs::read_symlink(folder / "latest"), fmt::format("step-{:08}", step));
  }
  stop = true;
  watcher.join();
  EXPECT_GT(looks, 0);
  EXPECT_EQ(misses, 0);
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000005", "step-00000006"));
  SaveLinear(folder.path(), 7, 2, 0);  // 0 keeps all
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000005", "step-00000006", "step-00000007"));
}

// A run that went back to an earlier step: what it has just written stays, whatever else is newer.
TEST(CheckpointFolder, TheOneJustWrittenIsNeverRotatedAway) {
  const TestFolder folder;
  for (const int64_t step : {10, 20, 5}) SaveLinear(folder.path(), step, 1, 2);
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000005", "step-00000020"));
  EXPECT_TRUE(fs::exists(folder / "latest/manifest.json"));
}

TEST(CheckpointFolder, AStepMayBeWrittenAgain) {
  const TestFolder folder;
  SaveLinear(folder.path(), 1, 2, 2);
  SaveLinear(folder.path(), 1, 1, 2);
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000001"));
  EXPECT_THAT(FilesIn(folder / "step-00000001"), ElementsAre("manifest.json", "rank-00000.safetensors"));
  // Killed while another folder was about to take the name, where the file system cannot exchange the two.
  fs::rename(folder / "step-00000001", folder / "step-00000001.replaced");
  EXPECT_EQ(LatestCheckpoint(folder.path()), folder / "step-00000001.replaced");
  SaveLinear(folder.path(), 1, 2, 2);
  EXPECT_THAT(FilesIn(folder.path()), ElementsAre("latest", "step-00000001"));
}

}  // namespace
}  // namespace trireme::testing
