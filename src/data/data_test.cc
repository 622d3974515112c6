#include <ATen/ops/empty.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "data/batch_loader.h"
#include "data/pack.h"
#include "data/sampler.h"
#include "data/token_file.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class DataTest : public ::testing::Test {
 protected:
  DataTest() : folder_(fs::temp_directory_path() / ("trireme-data-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~DataTest() override { fs::remove_all(folder_); }
  std::string Path(const char* name) const { return (folder_ / name).string(); }
  void Write(const char* name, const std::string& text) const { std::ofstream(Path(name), std::ios::binary) << text; }
  const fs::path folder_;
};

TEST_F(DataTest, PacksEachFileAsADocument) {
  Write("a", "hello");
  Write("b", std::string("\0\xff", 2));
  PackText({Path("a"), Path("b")}, Path("t"));
  const TokenFile file(Path("t"));
  EXPECT_EQ(file.num_tokens(), 7);
  EXPECT_EQ(file.num_documents(), 2);
  EXPECT_EQ(file.token_bytes(), 2);
  EXPECT_EQ(file.MaxToken(), 255);
  EXPECT_TRUE(std::ranges::equal(file.document_starts(), std::vector<int64_t>{0, 5, 7}));
  std::vector<int64_t> tokens(3);
  file.Read(4, tokens);
  EXPECT_EQ(tokens, (std::vector<int64_t>{'o', 0, 255}));
  EXPECT_THROW(file.Read(5, tokens), Error);
  // 34 bytes of header, 2 x (4 + 8) for sequences, 3 x 8 document bounds.
  EXPECT_EQ(fs::file_size(Path("t.idx")), 82u);
}

TEST_F(DataTest, EmptyInputIsAnEmptyFile) {
  Write("a", "");
  PackText({Path("a")}, Path("t"));
  EXPECT_EQ(TokenFile(Path("t")).num_tokens(), 0);
  EXPECT_EQ(TokenFile(Path("t")).MaxToken(), -1);
  EXPECT_THROW(PackText({Path("missing")}, Path("u")), UserError);
  EXPECT_THROW(TokenFile(Path("nothing")), UserError);
}

TEST_F(DataTest, LargeVocabulariesTakeFourBytes) {
  TokenFileWriter writer(Path("t"), 70000);
  writer.Append(std::vector<int32_t>{69999, 1});
  writer.Finish();
  EXPECT_EQ(TokenFile(Path("t")).token_bytes(), 4);
  EXPECT_EQ(TokenFile(Path("t")).MaxToken(), 69999);
}

TEST_F(DataTest, EveryCutAndEveryBrokenFieldIsRefused) {
  Write("a", "some text");
  PackText({Path("a")}, Path("t"));
  const std::string index = ReadFile(Path("t.idx")), data = ReadFile(Path("t.bin"));
  fs::copy(Path("t.bin"), Path("cut.bin"));
  for (size_t size = 0; size < index.size(); ++size) {
    Write("cut.idx", index.substr(0, size));
    EXPECT_THROW(TokenFile(Path("cut")), UserError) << size;
  }
  Write("cut.idx", index);
  EXPECT_EQ(TokenFile(Path("cut")).num_tokens(), 9);
  for (const size_t missing : {size_t{1}, size_t{2}, data.size()}) {
    Write("cut.bin", data.substr(0, data.size() - missing));
    EXPECT_THROW(TokenFile(Path("cut")), UserError) << missing;
  }
  Write("cut.bin", data);
  // Magic, version, type (6 is f64), sequences, bounds (also a count whose size wraps), length, offset, last document
  // bound.
  for (const size_t at : {0, 9, 17, 18, 25, 26, 33, 34, 38, 46, 54}) {
    std::string broken = index;
    broken[at] = static_cast<char>(broken[at] ^ (at == 17 ? 14 : 0x40));
    Write("cut.idx", broken);
    EXPECT_THROW(TokenFile(Path("cut")), UserError) << "offset " << at;
  }
}

TEST(Sampler, CountsSamples) {
  // With seq 8: tokens 0, 1, seq, seq + 1, seq + 2 hold 0, 0, 0, 1, 1 samples.
  const int64_t want[] = {0, 0, 0, 1, 1};
  const int64_t tokens[] = {0, 1, 8, 9, 10};
  for (int i = 0; i < 5; ++i) EXPECT_EQ(NumSamples(tokens[i], 8), want[i]);
  EXPECT_EQ(NumSamples(3000000000, 1000000), 2999);  // beyond 32 bits
}

// Ten samples, micro-batch 2, dp 3: one step an epoch on every rank, six distinct samples, four dropped.
TEST(Sampler, DropsWhatDoesNotFillABatch) {
  for (const bool shuffle : {false, true}) {
    const Sampler sampler(1, 10, 6, shuffle);
    EXPECT_EQ(sampler.samples_per_epoch(), 6);
    std::vector<int64_t> joined;
    for (int rank = 0; rank < 3; ++rank) {
      const std::vector<int64_t> mine = sampler.Batch(0, 3, rank);
      EXPECT_EQ(mine.size(), 2u);
      joined.insert(joined.end(), mine.begin(), mine.end());
    }
    EXPECT_EQ(joined, sampler.Batch(0));
    EXPECT_EQ(std::set(joined.begin(), joined.end()).size(), 6u);
    EXPECT_EQ(Sampler(1, 10, 6, shuffle).Batch(6),
              sampler.Batch(6));  // a restart from consumed = 6 sees the same step 2
    if (!shuffle) EXPECT_EQ(sampler.Batch(6), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  }
  EXPECT_THROW(Sampler(1, 5, 6, false), UserError);
}

TEST(Sampler, ShufflesEachEpochIntoAnotherPermutation) {
  for (const int64_t samples : {1, 2, 3, 64, 1000}) {
    const Sampler sampler(9, samples, 1, true);
    std::vector<int64_t> first, second;
    for (int64_t i = 0; i < samples; ++i) {
      first.push_back(sampler.At(i));
      second.push_back(sampler.At(samples + i));
    }
    if (samples >= 64) EXPECT_NE(first, second);
    for (std::vector<int64_t>* order : {&first, &second}) {
      if (samples >= 64) EXPECT_FALSE(std::ranges::is_sorted(*order));
      std::ranges::sort(*order);
      for (int64_t i = 0; i < samples; ++i) EXPECT_EQ((*order)[static_cast<size_t>(i)], i);
    }
  }
}

TEST_F(DataTest, LabelsAreTheNextTokensWhereTheMaskCountsThem) {
  Write("a", "abcdefgh");
  Write("mask", std::string("\1\1\0\1\1\1\1\0", 8));
  PackText({Path("a")}, Path("t"));
  const BatchLoader loader(Path("t"), 3, 256, Path("mask"), 1, 7);  // the split "bcdefgh": samples bcd and efg
  const at::Tensor tokens = at::empty({2, 3}, at::kLong), labels = at::empty({2, 3}, at::kLong);
  loader.Load(std::vector<int64_t>{0, 1}, tokens, labels);
  const auto values = [](const at::Tensor& t) {
    return std::vector<int64_t>(t.const_data_ptr<int64_t>(), t.const_data_ptr<int64_t>() + t.numel());
  };
  EXPECT_EQ(values(tokens), (std::vector<int64_t>{'b', 'c', 'd', 'e', 'f', 'g'}));
  EXPECT_EQ(values(labels), (std::vector<int64_t>{-100, 'd', 'e', 'f', 'g', -100}));
  EXPECT_THROW(loader.Load(std::vector<int64_t>{2}, tokens, labels), Error);
  Write("mask", "short");
  EXPECT_THROW(BatchLoader(Path("t"), 3, 256, Path("mask"), 0, 8), UserError);
}

TEST_F(DataTest, AnIdOutsideTheVocabularyIsNamed) {
  TokenFileWriter writer(Path("t"), 65536);
  writer.Append(std::vector<int32_t>{1, 2, 256, 65535});
  writer.Finish();
  const at::Tensor tokens = at::empty({1, 3}, at::kLong), labels = at::empty({1, 3}, at::kLong);
  try {
    BatchLoader(Path("t"), 3, 256, "", 0, 4).Load(std::vector<int64_t>{0}, tokens, labels);
    FAIL() << "accepted id 256";
  } catch (const Error& e) {
    EXPECT_STREQ(e.what(), "sample 0 position 2 (token 2 of the file): id 256 is outside model.vocab 256");
  }
}

}  // namespace
}  // namespace trireme
