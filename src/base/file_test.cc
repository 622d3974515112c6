#include "base/file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "base/error.h"
#include "base/hash.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  FileTest() : folder_(fs::temp_directory_path() / ("trireme-file-" + std::to_string(getpid()))) {
    fs::create_directories(folder_);
  }
  ~FileTest() override { fs::remove_all(folder_); }
  const fs::path folder_;
};

TEST_F(FileTest, AtomicWriteReplacesTheWholeFileAndLeavesNothingBehind) {
  const fs::path path = folder_ / "a";
  WriteFileAtomically(path, "first");
  WriteFileAtomically(path, "2");
  EXPECT_EQ(ReadFile(path), "2");
  EXPECT_EQ(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()), 1);
}

TEST_F(FileTest, MapsWhatWasWrittenIncludingAnEmptyFile) {
  WriteFileAtomically(folder_ / "full", "bytes");
  const MappedFile full(folder_ / "full");
  ASSERT_EQ(full.bytes().size(), 5u);
  EXPECT_EQ(std::memcmp(full.bytes().data(), "bytes", 5), 0);
  WriteFileAtomically(folder_ / "empty", "");
  EXPECT_TRUE(MappedFile(folder_ / "empty").bytes().empty());
}

TEST_F(FileTest, ErrorsNameThePathAndTheReason) {
  for (const fs::path& path : {folder_ / "missing", folder_}) {
    try {
      ReadFile(path);
      FAIL() << "read " << path;
    } catch (const UserError& e) {
      EXPECT_NE(std::string(e.what()).find(path.string()), std::string::npos) << e.what();
    }
    EXPECT_THROW(MappedFile{path}, UserError);
  }
  EXPECT_THROW(FileWriter(folder_ / "no" / "such" / "folder"), Error);
}

TEST_F(FileTest, WriteAtFillsAHole) {
  FileWriter writer(folder_ / "b");
  writer.Write("abcdef");
  writer.WriteAt(2, std::as_bytes(std::span("XY", 2)));
  writer.Close();
  EXPECT_EQ(ReadFile(folder_ / "b"), "abXYef");
}

TEST(Hash, PiecesGiveTheHashOfTheWhole) {
  const std::string text = "the quick brown fox";
  const auto bytes = std::as_bytes(std::span(text));
  StreamingHash64 hash;
  hash.Update(bytes.first(7));
  hash.Update(bytes.subspan(7));
  EXPECT_EQ(hash.Value(), Hash64(bytes));
  // XXH3-64 of nothing, from the xxHash specification's test values.
  EXPECT_EQ(HashText(Hash64({})), "2d06800538d394c2");
}

}  // namespace
}  // namespace trireme
