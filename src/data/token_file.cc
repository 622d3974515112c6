#include "data/token_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace trireme {
namespace {

constexpr char kMagic[9] = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr uint64_t kHeader = 9 + 8 + 1 + 8 + 8;  // magic, version, type, sequences, documents
constexpr uint8_t kU16 = 8, kI32 = 4;

int64_t BytesOfType(uint8_t code) {
  switch (code) {
    case 1:
    case 2:
      return 1;
    case 3:
    case 8:
      return 2;
    case 4:
      return 4;
    case 5:
      return 8;
    default:
      return 0;
  }
}

// The arrays of an index are not aligned.
template <class T>
T At(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

template <class T>
void ReadAs(const std::byte* from, std::span<int64_t> out) {
  for (size_t i = 0; i < out.size(); ++i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    out[i] = static_cast<int64_t>(value);
  }
}

}  // namespace

struct TokenFile::Impl {
  explicit Impl(const std::string& prefix) : index(prefix + ".idx"), data(prefix + ".bin") {
    const auto idx = index.bytes();
    const std::string name = index.path().string();
    if (idx.size() < kHeader) FailUser("{}: expected a header of {} bytes, the file has {}", name, kHeader, idx.size());
    if (std::memcmp(idx.data(), kMagic, sizeof(kMagic)) != 0) {
      FailUser("{}: offset 0: expected the magic MMIDIDX of a Megatron-Core index; is this a token file's .idx?", name);
    }
    if (At<uint64_t>(idx, 9) != 1) FailUser("{}: offset 9: expected version 1, got {}", name, At<uint64_t>(idx, 9));
    type = At<uint8_t>(idx, 17);
    width = BytesOfType(type);
    if (width == 0) FailUser("{}: offset 17: expected an integer token type (1-5 or 8), got {}", name, type);
    const uint64_t sequences = At<uint64_t>(idx, 18), bounds = At<uint64_t>(idx, 26);
    // Bounded before multiplied: a hostile count must not wrap around.
    const uint64_t room = idx.size() - kHeader;
    if (sequences > room / 12 || bounds > room / 8 || sequences * 12 + bounds * 8 != room) {
      FailUser(
          "{}: {} sequences (12 bytes each) and {} document bounds (8 bytes each) do not fill the {} bytes after the "
          "header",
          name, sequences, bounds, room);
    }
    CheckSequences(idx, sequences);
    ReadDocuments(idx, sequences, bounds);
  }

  // Sequences follow each other without gaps and fill the .bin exactly.
  void CheckSequences(std::span<const std::byte> idx, uint64_t sequences) {
    const uint64_t pointers = kHeader + 4 * sequences;
    int64_t next = 0;
    starts.reserve(sequences + 1);
    for (uint64_t s = 0; s < sequences; ++s) {
      const auto length = At<int32_t>(idx, kHeader + 4 * s);
      const auto offset = At<int64_t>(idx, pointers + 8 * s);
      if (length < 0 || offset != next) {
        FailUser("{}: sequence {}: expected byte offset {} and a length of at least 0, got {} and {}",
                 index.path().string(), s, next, offset, length);
      }
      starts.push_back(next / width);
      next += length * width;
    }
    tokens = next / width;
    starts.push_back(tokens);
    if (static_cast<uint64_t>(next) != data.bytes().size()) {
      FailUser("{}: expected {} bytes ({} tokens of {} bytes, by {}), the file has {}", data.path().string(), next,
               tokens, width, index.path().string(), data.bytes().size());
    }
  }

  void ReadDocuments(std::span<const std::byte> idx, uint64_t sequences, uint64_t bounds) {
    const uint64_t at = kHeader + 12 * sequences;
    int64_t previous = 0;
    for (uint64_t d = 0; d < bounds; ++d) {
      const auto bound = At<int64_t>(idx, at + 8 * d);
      const bool fits = bound >= previous && static_cast<uint64_t>(bound) <= sequences && (d > 0 || bound == 0);
      if (!fits) {
        FailUser("{}: offset {}: document bound {} of {}: expected {} .. {}, got {}", index.path().string(), at + 8 * d,
                 d, bounds, previous, d == 0 ? 0 : sequences, bound);
      }
      documents.push_back(starts[static_cast<size_t>(bound)]);
      previous = bound;
    }
    if (static_cast<uint64_t>(previous) != sequences) {
      FailUser("{}: the last document ends at sequence {}, expected {}", index.path().string(), previous, sequences);
    }
  }

  MappedFile index, data;
  uint8_t type = 0;
  int64_t width = 0, tokens = 0;
  std::vector<int64_t> starts;     // token index of each sequence, then the end
  std::vector<int64_t> documents;  // token index of each document, then the end
};

TokenFile::TokenFile(const std::string& prefix) : impl_(std::make_unique<Impl>(prefix)) {}
TokenFile::~TokenFile() = default;
TokenFile::TokenFile(TokenFile&&) noexcept = default;

int64_t TokenFile::num_tokens() const { return impl_->tokens; }
int64_t TokenFile::num_documents() const {
  return std::max<int64_t>(0, static_cast<int64_t>(impl_->documents.size()) - 1);
}
int64_t TokenFile::token_bytes() const { return impl_->width; }
std::span<const int64_t> TokenFile::document_starts() const { return impl_->documents; }

void TokenFile::Read(int64_t begin, std::span<int64_t> out) const {
  const auto count = static_cast<int64_t>(out.size());
  TRIREME_CHECK(begin >= 0 && count <= impl_->tokens && begin <= impl_->tokens - count, "tokens {} .. {} of {} in {}",
                begin, begin + count - 1, impl_->tokens, impl_->data.path().string());
  const std::byte* from = impl_->data.bytes().data() + begin * impl_->width;
  switch (impl_->type) {
    case 1:
      ReadAs<uint8_t>(from, out);
      break;
    case 2:
      ReadAs<int8_t>(from, out);
      break;
    case 3:
      ReadAs<int16_t>(from, out);
      break;
    case 4:
      ReadAs<int32_t>(from, out);
      break;
    case 5:
      ReadAs<int64_t>(from, out);
      break;
    default:
      ReadAs<uint16_t>(from, out);
      break;
  }
}

int64_t TokenFile::MaxToken() const {
  std::vector<int64_t> block(std::min<size_t>(1 << 16, static_cast<size_t>(impl_->tokens)));
  int64_t largest = -1;
  for (int64_t begin = 0; begin < impl_->tokens; begin += static_cast<int64_t>(block.size())) {
    const std::span some = std::span(block).first(
        static_cast<size_t>(std::min<int64_t>(static_cast<int64_t>(block.size()), impl_->tokens - begin)));
    Read(begin, some);
    largest = std::max(largest, *std::ranges::max_element(some));
  }
  return largest;
}

struct TokenFileWriter::Impl {
  Impl(const std::string& prefix, int64_t vocab)
      : prefix(prefix), data(prefix + ".bin.tmp"), type(vocab <= 65536 ? kU16 : kI32) {}

  const std::string prefix;
  FileWriter data;
  const uint8_t type;
  int64_t in_document = 0;
  std::vector<int32_t> lengths;

  void Append(std::span<const int32_t> tokens) {
    if (type == kI32) {
      data.Write(std::as_bytes(tokens));
    } else {
      const std::vector<uint16_t> narrow(tokens.begin(), tokens.end());
      data.Write(std::as_bytes(std::span(narrow)));
    }
    in_document += static_cast<int64_t>(tokens.size());
  }
};

TokenFileWriter::TokenFileWriter(const std::string& prefix, int64_t vocab)
    : impl_(std::make_unique<Impl>(prefix, vocab)) {}
TokenFileWriter::~TokenFileWriter() = default;
void TokenFileWriter::Append(std::span<const int32_t> tokens) { impl_->Append(tokens); }

void TokenFileWriter::EndDocument() {
  constexpr int64_t kLongest = INT32_MAX;  // the index counts a sequence in 32 bits
  if (impl_->in_document > kLongest) {
    FailUser("{}.bin: a document of {} tokens; the format holds {} at most: split the file", impl_->prefix,
             impl_->in_document, kLongest);
  }
  impl_->lengths.push_back(static_cast<int32_t>(std::exchange(impl_->in_document, 0)));
}

void TokenFileWriter::Finish() {
  if (impl_->in_document > 0) EndDocument();
  impl_->data.Close();
  const uint64_t sequences = impl_->lengths.size(), bounds = sequences + 1;
  std::string index(kMagic, sizeof(kMagic));
  const auto put = [&](const auto& value) { index.append(reinterpret_cast<const char*>(&value), sizeof(value)); };
  put(uint64_t{1});
  put(impl_->type);
  put(sequences);
  put(bounds);
  for (const int32_t length : impl_->lengths) put(length);
  int64_t offset = 0;
  for (const int32_t length : impl_->lengths) {
    put(offset);
    offset += length * BytesOfType(impl_->type);
  }
  for (uint64_t d = 0; d < bounds; ++d) put(static_cast<int64_t>(d));
  // The data first: an index never describes data that is not there.
  std::filesystem::rename(impl_->prefix + ".bin.tmp", impl_->prefix + ".bin");
  WriteFileAtomically(impl_->prefix + ".idx", index);
}

}  // namespace trireme
