#pragma once
// XXH3-64: checksums of checkpoints and audits. Not cryptographic.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace trireme {

uint64_t Hash64(std::span<const std::byte> bytes);

// The same value as Hash64 of all pieces joined.
class StreamingHash64 {
 public:
  StreamingHash64();
  ~StreamingHash64();
  void Update(std::span<const std::byte> bytes);
  uint64_t Value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string HashText(uint64_t hash);  // 16 hex digits

}  // namespace trireme
