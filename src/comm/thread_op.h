#pragma once
// One operation of the thread back end: what each member brought, and the work cut into chunks. Internal to comm.

#include <ATen/core/Tensor.h>

#include <atomic>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "comm/call.h"

namespace trireme::internal {

// What one member brings to an operation.
struct OpEntry : Call {
  bool arrived = false;
};

struct ThreadGroup;

// Guarded by the group's mutex until `ready`; then the entries are constant and chunks are taken without a lock.
struct ThreadOp {
  std::vector<int> members;      // group ranks, in the order of `entries`
  std::vector<OpEntry> entries;  // a send-receive has two: the sender's and the receiver's
  size_t arrived = 0;
  std::string error;  // set once, under the mutex, and only while not ready
  std::vector<std::shared_ptr<ThreadGroup>> split;
  int64_t chunks = 0;
  std::atomic<int64_t> next_chunk = 0, done_chunks = 0;
  std::atomic<bool> ready = false, failed = false, complete = false;
  std::atomic<bool> abandoned = false;  // failed because the world was aborted: an echo, not a cause
};

// Empty where the entries fit together, else why not.
std::string Mismatch(const ThreadOp& op);
int64_t CountChunks(const ThreadOp& op);
// Chunks touch disjoint outputs; any thread may run any chunk, in any order, once.
void RunChunk(const ThreadOp& op, int64_t chunk);

}  // namespace trireme::internal
