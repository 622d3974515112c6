#pragma once
// A rank's own memory for activations and temporaries: taken from the system once and used again at every step, so that
// a warm step causes next to no page faults. Allocation is a pointer bump; memory goes back by returning to a mark, in
// stack order. Growth beyond the reserved bytes adds a block and is counted. Under AddressSanitizer the gaps between
// tensors and everything above the top are poisoned.
//
// Not thread safe: one rank, one thread. Tensors handed out are views; using one after its mark was released is an
// error.

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "base/units.h"

namespace trireme {

class Arena {
 public:
  explicit Arena(Bytes reserve = Bytes(0));
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // Uninitialised, contiguous, 64-byte aligned.
  at::Tensor Allocate(at::IntArrayRef sizes, at::ScalarType type);

  struct Mark {
    size_t block = 0;
    size_t used = 0;
  };
  Mark Top() const;
  void Release(Mark mark);  // everything allocated since `mark` is gone
  void Reset() { Release(Mark{}); }

  Bytes used() const;
  Bytes peak() const;  // highest used() so far
  Bytes capacity() const;
  int64_t growths() const;  // blocks added after construction

 private:
  struct Block;
  std::vector<std::unique_ptr<Block>> blocks_;
  size_t block_ = 0;
  Bytes peak_;
  int64_t growths_ = 0;
};

// Releases on leaving the scope what was allocated in it.
class ArenaScope {
 public:
  explicit ArenaScope(Arena& arena) : arena_(arena), mark_(arena.Top()) {}
  ~ArenaScope() { arena_.Release(mark_); }
  ArenaScope(const ArenaScope&) = delete;
  ArenaScope& operator=(const ArenaScope&) = delete;

 private:
  Arena& arena_;
  Arena::Mark mark_;
};

}  // namespace trireme
