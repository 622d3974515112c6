#pragma once
// What ranks say to each other. One Communicator is one group as one rank sees it; all back ends keep this contract.
//
// Order: every member of a group issues the same collectives in the same order (sends and receives pair per peer and
// direction, in order). Works may be waited for in any order. Tensors are contiguous, belong to the caller, and must
// stay alive and untouched (inputs unchanged, outputs unread) until Wait returns. In-place is allowed where input and
// output are the same tensor. A group of one rank does what the mathematics says (copies), never anything else.
//
// Errors: a peer that is missing after the time-out, that calls another operation, shape, type, root or reduction at
// the same sequence number, or that has failed, makes Wait throw CommError on every member: [rank coordinate]
// operation, group, sequence number, expected, got. Nothing hangs for longer than the time-out.
//
// Threads: a Communicator is used by one thread at a time; Abort may be called from any thread.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace trireme {

class CommError : public Error {
 public:
  using Error::Error;
};

// How errors and logs name a rank: "rank 3 dp1 tp1". describe gives what follows the number, and may be empty.
std::string DescribeRank(int world_rank, const std::function<std::string(int)>& describe);

enum class ReduceOp { kSum, kMax, kMin };

// One operation under way. Destroying a Work that was not waited for waits for it (errors are then lost).
class Work {
 public:
  virtual ~Work() = default;
  // Orders the caller after the operation (on CPU: blocks until it is complete). Throws CommError. Idempotent.
  virtual void Wait() = 0;
};
using WorkPtr = std::unique_ptr<Work>;

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;  // in this group, 0 .. size-1
  virtual int size() const = 0;
  virtual const std::string& name() const = 0;        // the axis: "world", "tp", "dp", ...
  virtual const std::vector<int>& ranks() const = 0;  // the members' world ranks; ranks()[rank()] is the caller

  // Sums (max, min) element by element, in rank order with at least fp32 accumulation: all ranks get the same bits.
  virtual WorkPtr AllReduce(const at::Tensor& tensor, ReduceOp op = ReduceOp::kSum) = 0;
  // in: size() equal pieces; out: the reduced piece of this rank. out.numel() * size() == in.numel().
  virtual WorkPtr ReduceScatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op = ReduceOp::kSum) = 0;
  // out: every rank's `in`, joined in rank order. out may hold `in` at its place.
  virtual WorkPtr AllGather(const at::Tensor& out, const at::Tensor& in) = 0;
  virtual WorkPtr Broadcast(const at::Tensor& tensor, int root) = 0;
  // Pieces along the first dimension: in_rows[r] rows of `in` go to rank r, out_rows[r] rows of `out` come from rank r.
  virtual WorkPtr AllToAll(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_rows,
                           const std::vector<int64_t>& in_rows) = 0;
  virtual WorkPtr Send(const at::Tensor& tensor, int to) = 0;
  virtual WorkPtr Recv(const at::Tensor& tensor, int from) = 0;
  virtual WorkPtr Barrier() = 0;

  // A group for each list of this group's ranks; returns the one that holds the caller. Collective: all members pass
  // the same lists, which must partition 0 .. size-1, and the same name (else CommError showing both).
  virtual std::unique_ptr<Communicator> Split(const std::vector<std::vector<int>>& groups, std::string name) = 0;

  // Ends the run for all ranks of all groups of the same world: every pending and later Wait throws CommError with
  // `reason`. The first reason wins.
  virtual void Abort(std::string_view reason) = 0;
};

}  // namespace trireme
