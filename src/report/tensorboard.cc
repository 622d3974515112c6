#include "report/tensorboard.h"

#include <unistd.h>

#include <array>
#include <bit>
#include <chrono>
#include <cstring>
#include <fstream>
#include <string>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::array<uint32_t, 256> MakeTable() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    table[i] = crc;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = MakeTable();

template <class T>
std::string Raw(T value) {
  return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
}

// TFRecord masks checksums, since data that holds its own checksum is a weak test.
uint32_t Masked(std::string_view bytes) {
  const uint32_t crc = Crc32c(bytes);
  return std::rotr(crc, 15) + 0xa282ead8;
}

std::string Varint(uint64_t value) {
  std::string text;
  for (; value >= 0x80; value >>= 7) text += static_cast<char>(value | 0x80);
  return text + static_cast<char>(value);
}

// Wire types: 0 varint, 1 eight bytes, 2 length and bytes, 5 four bytes.
std::string Tag(int field, int wire) { return Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire)); }
std::string Bytes(int field, std::string_view bytes) {
  return Tag(field, 2) + Varint(bytes.size()) + std::string(bytes);
}

double Now() { return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count(); }

}  // namespace

uint32_t Crc32c(std::string_view bytes) {
  uint32_t crc = 0xffffffff;
  for (const char c : bytes) crc = kTable[(crc ^ static_cast<unsigned char>(c)) & 0xff] ^ crc >> 8;
  return ~crc;
}

struct TensorBoardWriter::Impl {
  std::ofstream out;
  std::filesystem::path path;

  void Record(const std::string& event) {
    const std::string length = Raw(static_cast<uint64_t>(event.size()));
    out << length << Raw(Masked(length)) << event << Raw(Masked(event));
    out.flush();
    if (!out) Fail("cannot write {}", path.string());
  }
};

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& run_dir) : impl_(std::make_unique<Impl>()) {
  char host[256] = "host";
  ::gethostname(host, sizeof(host) - 1);
  impl_->path = run_dir / fmt::format("events.out.tfevents.{:.0f}.{}.{}", Now() * 1e3, host, ::getpid());
  impl_->out.open(impl_->path, std::ios::binary);
  impl_->Record(Tag(1, 1) + Raw(Now()) + Bytes(3, "brain.Event:2"));
}

TensorBoardWriter::~TensorBoardWriter() = default;

void TensorBoardWriter::Scalar(std::string_view tag, int64_t step, double value) {
  const std::string entry = Bytes(1, tag) + Tag(2, 5) + Raw(static_cast<float>(value));
  impl_->Record(Tag(1, 1) + Raw(Now()) + Tag(2, 0) + Varint(static_cast<uint64_t>(step)) + Bytes(5, Bytes(1, entry)));
}

}  // namespace trireme
