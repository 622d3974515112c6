#pragma once
// Counts what a communicator moves: the decorator behind comm_bytes and comm_s, and behind tests that count
// collectives.

#include <map>
#include <memory>
#include <string>

#include "base/units.h"
#include "comm/communicator.h"

namespace trireme {

struct CommCount {
  int64_t calls = 0;
  Bytes bytes;     // sent by this rank as a ring or pairwise algorithm would send them (docs/numerics.md): all-reduce
                   // 2 (n-1)/n of the tensor, reduce-scatter and all-gather (n-1)/n of the whole, broadcast the tensor
                   // from the root, all-to-all what goes to others, send the tensor
  Seconds waited;  // blocked in Wait: exposed communication
};

// One per rank; not thread safe.
class CommRecorder {
 public:
  // Key: group name ("tp") -> operation ("all_reduce").
  using Counts = std::map<std::string, std::map<std::string, CommCount>>;
  void Add(const std::string& group, const std::string& op, const CommCount& count);
  const Counts& counts() const { return counts_; }
  CommCount Total(const std::string& group) const;
  void Reset() { counts_.clear(); }

 private:
  Counts counts_;
};

// Wraps `inner`; Split wraps the new group too. `recorder` must outlive the result and its Works.
std::unique_ptr<Communicator> Record(std::unique_ptr<Communicator> inner, CommRecorder& recorder);

}  // namespace trireme
