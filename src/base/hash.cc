#include "base/hash.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace trireme {

uint64_t Hash64(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct StreamingHash64::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() { XXH3_64bits_reset(xxh); }
  ~State() { XXH3_freeState(xxh); }
};

StreamingHash64::StreamingHash64() : state_(std::make_unique<State>()) {}
StreamingHash64::~StreamingHash64() = default;
void StreamingHash64::Update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_->xxh, bytes.data(), bytes.size());
}
uint64_t StreamingHash64::Value() const { return XXH3_64bits_digest(state_->xxh); }

std::string HashText(uint64_t hash) { return fmt::format("{:016x}", hash); }

}  // namespace trireme
