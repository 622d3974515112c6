#pragma once
// Token files in Megatron-Core's indexed format: PREFIX.bin (raw tokens) and PREFIX.idx (sequence lengths, byte
// offsets, document bounds; layout in docs/data-format.md). Read through a memory map; everything in the index is
// checked against the real sizes when it is opened. Immutable and safe from any thread once open.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace trireme {

class TokenFile {
 public:
  // UserError names the file, byte offset, expected and found when either file is missing, cut, or contradicts the
  // other.
  explicit TokenFile(const std::string& prefix);
  ~TokenFile();
  TokenFile(TokenFile&&) noexcept;

  int64_t num_tokens() const;
  int64_t num_documents() const;
  int64_t token_bytes() const;                       // 1, 2, 4 or 8
  std::span<const int64_t> document_starts() const;  // token index of each document, then num_tokens()
  // Tokens begin .. begin + out.size() - 1 of the whole stream, documents joined.
  void Read(int64_t begin, std::span<int64_t> out) const;
  int64_t MaxToken() const;  // reads everything

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Writes a pair; tokens stream through, nothing is kept. The files appear under their names when Finish succeeds.
class TokenFileWriter {
 public:
  // vocab decides the token type: u16 up to 65,536 ids, else i32.
  TokenFileWriter(const std::string& prefix, int64_t vocab);
  ~TokenFileWriter();
  void Append(std::span<const int32_t> tokens);
  void EndDocument();
  void Finish();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
