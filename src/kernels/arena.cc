#include "kernels/arena.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace trireme {
namespace {

constexpr size_t kAlign = 64;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kGap = 64;  // poisoned bytes behind each tensor
void Poison(std::byte* at, size_t size) { ASAN_POISON_MEMORY_REGION(at, size); }
void Unpoison(std::byte* at, size_t size) { ASAN_UNPOISON_MEMORY_REGION(at, size); }
#else
constexpr size_t kGap = 0;
void Poison(std::byte*, size_t) {}
void Unpoison(std::byte*, size_t) {}
#endif

size_t RoundUp(size_t size) { return (size + kAlign - 1) / kAlign * kAlign; }

}  // namespace

struct Arena::Block {
  explicit Block(size_t bytes) : size(RoundUp(bytes)), data(static_cast<std::byte*>(std::aligned_alloc(kAlign, size))) {
    if (data == nullptr) throw std::bad_alloc();
    Poison(data, size);
  }
  ~Block() {
    Unpoison(data, size);
    std::free(data);
  }
  const size_t size;
  std::byte* const data;
  size_t used = 0;
};

Arena::Arena(Bytes reserve) {
  if (reserve.value > 0) blocks_.push_back(std::make_unique<Block>(static_cast<size_t>(reserve.value)));
}

Arena::~Arena() = default;

at::Tensor Arena::Allocate(at::IntArrayRef sizes, at::ScalarType type) {
  size_t bytes = c10::elementSize(type);
  for (const int64_t size : sizes) bytes *= static_cast<size_t>(size);
  const size_t room = RoundUp(bytes) + kGap;
  while (block_ < blocks_.size() && blocks_[block_]->used + room > blocks_[block_]->size) ++block_;
  if (block_ == blocks_.size()) {
    const size_t last = blocks_.empty() ? 0 : blocks_.back()->size;
    blocks_.push_back(std::make_unique<Block>(std::max({room, 2 * last, size_t{1} << 20})));
    ++growths_;
  }
  Block& block = *blocks_[block_];
  std::byte* at = block.data + block.used;
  block.used += room;
  Unpoison(at, bytes);
  peak_ = std::max(peak_, used());
  return at::from_blob(at, sizes, at::TensorOptions().dtype(type));
}

Arena::Mark Arena::Top() const { return {block_, block_ < blocks_.size() ? blocks_[block_]->used : 0}; }

void Arena::Release(Mark mark) {
  for (size_t b = mark.block; b < blocks_.size() && b <= block_; ++b) {
    Block& block = *blocks_[b];
    const size_t keep = b == mark.block ? mark.used : 0;
    Poison(block.data + keep, block.used - keep);
    block.used = keep;
  }
  block_ = mark.block;
}

Bytes Arena::used() const {
  size_t total = 0;
  for (size_t b = 0; b < blocks_.size() && b <= block_; ++b) total += blocks_[b]->used;
  return Bytes(static_cast<int64_t>(total));
}

Bytes Arena::peak() const { return peak_; }

Bytes Arena::capacity() const {
  size_t total = 0;
  for (const auto& block : blocks_) total += block->size;
  return Bytes(static_cast<int64_t>(total));
}

int64_t Arena::growths() const { return growths_; }

}  // namespace trireme
