#include "checkpoint/safetensors.h"

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>

#include <cstring>
#include <fstream>

#include "base/hash.h"
#include "checkpoint/test_folder.h"

namespace trireme::testing {
namespace {

using ::testing::HasSubstr;

std::string File(const std::string& header, size_t data_bytes) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(data_bytes, 'x');
}

TEST(Safetensors, RoundTripKeepsBitsTypesAndShapes) {
  const TestFolder folder;
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"flags", at::full({3}, true, at::TensorOptions(at::kBool))},  // 3 bytes: what follows must still be aligned
      {"half", at::arange(4, at::TensorOptions(at::kBFloat16))},
      {"wide", at::arange(6, at::TensorOptions(at::kDouble)).view({2, 3})},
      {"turned", at::arange(6, at::TensorOptions(at::kFloat)).view({2, 3}).t()},
      {"scalar", at::full({}, 7, at::TensorOptions(at::kLong))},
      {"none", at::zeros({0, 5})},
  };
  const WrittenFile written = WriteSafetensors(folder / "a", tensors, {{"format", "pt"}});
  EXPECT_EQ(written.bytes, std::filesystem::file_size(folder / "a"));
  EXPECT_EQ(written.xxh3, Hash64(MappedFile(folder / "a").bytes()));

  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor read = file.View(name);
    EXPECT_EQ(read.scalar_type(), tensor.scalar_type()) << name;
    EXPECT_TRUE(read.equal(tensor)) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(read.const_data_ptr()) % read.element_size(), 0u) << name;
  }
}

// 5 x 2^20 floats are 20 MiB, above the 16 MiB that are gathered at once.
TEST(Safetensors, LargeStridedTensorsAreWrittenInPieces) {
  const TestFolder folder;
  const at::Tensor turned = at::arange(5 << 20, at::TensorOptions(at::kFloat)).view({1 << 20, 5}).t();
  WriteSafetensors(folder / "a", {{"t", turned}}, {});
  EXPECT_TRUE(SafetensorsFile(folder / "a").View("t").equal(turned));
}

// A header that is not padded: 4-byte numbers at an odd address.
TEST(Safetensors, UnalignedDataIsCopied) {
  const TestFolder folder;
  std::string header = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  header.resize(header.size() / 8 * 8 + 9, ' ');
  std::string text = File(header, 8);
  const float values[] = {1.5f, -2.f};
  std::memcpy(text.data() + text.size() - 8, values, 8);
  WriteText(folder / "a", text);
  const SafetensorsFile file(folder / "a");
  EXPECT_EQ(file.View("t")[1].item<float>(), -2.f);
}

TEST(Safetensors, HostileFilesAreRefusedByName) {
  struct Case {
    std::string text;
    std::string message;
  };
  const auto tensor = [](const std::string& fields) { return "{\"t\":{" + fields + "}}"; };
  const Case cases[] = {
      {"", "0 bytes are too few"},
      {"1234567", "7 bytes are too few"},
      {std::string(8, '\xff'), "the header claims 18446744073709551615 bytes, but 0 follow"},
      {File("{}", 0).replace(0, 1, "\x03"), "the header claims 3 bytes, but 2 follow"},
      {File("[]", 0), "expected a JSON object"},
      {File("{", 0), "not valid JSON"},
      {File("{} x", 0), "not valid JSON"},
      {File(std::string(100000, '['), 0), "not valid JSON"},
      {File(R"({"t":1})", 0), "tensor 't': expected an object"},
      {File(tensor(R"("dtype":"F32","shape":[1])"), 4), "tensor 't': field 'data_offsets' is missing"},
      {File(tensor(R"("dtype":"F31","shape":[1],"data_offsets":[0,4])"), 4), "tensor 't': dtype 'F31' is not known"},
      {File(tensor(R"("dtype":"F32","shape":[-1],"data_offsets":[0,4])"), 4), "field 'shape'"},
      {File(tensor(R"("dtype":"F32","shape":[1.0],"data_offsets":[0,4])"), 4), "field 'shape'"},
      {File(tensor(R"("dtype":"F32","shape":1,"data_offsets":[0,4])"), 4), "field 'shape'"},
      {File(tensor(R"("dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,4])"), 4), "field 'shape'"},
      {File(tensor(R"("dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4])"), 4), "too large"},
      {File(tensor(R"("dtype":"F32","shape":[0,4294967296,4294967296],"data_offsets":[0,0])"), 0), "too large"},
      {File(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4), "span 4 bytes, but F32 [2] takes 8"},
      {File(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[4,0])"), 4), "expected begin <= end <= 4"},
      {File(tensor(R"("dtype":"F32","shape":[1],"data_offsets":[0,4,8])"), 8), "expected begin <= end <= 8"},
      {File(tensor(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])"), 7), "expected begin <= end <= 7"},
      {File(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2), "tensor 't': data begins at byte 1"},
      {File(tensor(R"("dtype":"U8","shape":[1],"data_offsets":[0,1])"), 2), "accounts for 1 bytes of data, but 2"},
      {File(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],)"
            R"("data_offsets":[1,3]}})",
            3),
       "tensor 'b': data begins at byte 1, expected 2: it overlaps"},
      {File(R"({"t":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"t":{"dtype":"U8","shape":[1],)"
            R"("data_offsets":[0,1]}})",
            1),
       "key 't' stands twice"},
      {File(R"({"__metadata__":{"a":1}})", 0), "__metadata__: field 'a': expected a text"},
      {File(R"({"__metadata__":[]})", 0), "__metadata__: expected an object"},
  };
  const TestFolder folder;
  for (const Case& c : cases) {
    WriteText(folder / "bad", c.text);
    const std::string message = UserErrorOf([&] { SafetensorsFile{folder / "bad"}; });
    EXPECT_THAT(message, HasSubstr(c.message));
    EXPECT_THAT(message, HasSubstr((folder / "bad").string()));
  }
}

// Whatever bit is wrong, the file is either refused or read within its bounds.
TEST(Safetensors, EveryFlippedBitIsRefusedOrHarmless) {
  const TestFolder folder;
  WriteSafetensors(folder / "good", {{"a", at::arange(3)}, {"b", at::zeros({2, 2})}}, {{"format", "pt"}});
  const std::string good = ReadFile(folder / "good");
  int refused = 0, opened = 0;
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string bad = good;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << (bit % 8)));
    std::ofstream(folder / "bad", std::ios::binary) << bad;
    try {
      const SafetensorsFile file(folder / "bad");
      for (const auto& [name, entry] : file.entries()) file.View(name).clone();
      ++opened;
    } catch (const UserError&) {
      ++refused;
    }
  }
  EXPECT_GE(opened, (24 + 16) * 8);  // the data itself: 3 x 8 and 4 x 4 bytes
  EXPECT_GE(refused, 8 * 4);         // at least the header's length, whose upper half is far beyond the file
}

}  // namespace
}  // namespace trireme::testing
