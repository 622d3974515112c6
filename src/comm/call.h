#pragma once
// One call of a Communicator as data: what a back end carries out, describes in errors, and compares between members.
// Internal to comm.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "comm/communicator.h"

namespace trireme::internal {

enum class OpKind { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kSendRecv, kBarrier, kSplit };

// Tensors are undefined where the operation has none.
struct Call {
  std::string_view name;  // "all_reduce"; a send and its recv differ in name only
  OpKind kind = OpKind::kBarrier;
  at::Tensor in, out;
  int root = 0;  // of a broadcast
  int peer = 0;  // of a send or recv
  ReduceOp reduce = ReduceOp::kSum;
  std::vector<int64_t> in_rows, out_rows;  // all_to_all
  std::string text;                        // split: name and lists

  const at::Tensor& tensor() const { return in.defined() ? in : out; }
};

// "all_reduce Float[3, 4] sum"
std::string CallText(const Call& call);
// Empty where two members' calls of one collective (or a send and its recv) fit together, else what differs.
// All_to_all's row counts are compared by the back end.
std::string CallsDiffer(const Call& a, const Call& b);

// The same rule for members that cannot see each other's calls: equal exactly where CallsDiffer is empty.
std::string Agreement(const Call& call);
// What an error says when calls do not fit: "expected the same call on every member, but {differ}: rank 0: ...; ...".
// members: each one's rank text and call text.
std::string MismatchText(std::string_view differ, const std::vector<std::pair<std::string, std::string>>& members);

// A communicator whose methods become one checked Call each. Arguments that cannot be right (a root outside the group,
// sizes that do not fit, a tensor that is not contiguous) throw CommError at once.
class CallCommunicator : public Communicator {
 public:
  int size() const final { return static_cast<int>(ranks().size()); }
  WorkPtr AllReduce(const at::Tensor& tensor, ReduceOp op) final;
  WorkPtr ReduceScatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) final;
  WorkPtr AllGather(const at::Tensor& out, const at::Tensor& in) final;
  WorkPtr Broadcast(const at::Tensor& tensor, int root) final;
  WorkPtr AllToAll(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_rows,
                   const std::vector<int64_t>& in_rows) final;
  WorkPtr Send(const at::Tensor& tensor, int to) final;
  WorkPtr Recv(const at::Tensor& tensor, int from) final;
  WorkPtr Barrier() final;
  std::unique_ptr<Communicator> Split(const std::vector<std::vector<int>>& groups, std::string name) final;

 protected:
  virtual WorkPtr Issue(Call call) = 0;
  // The caller is member `mine_rank` of groups[mine]. `call` describes the split for comparison.
  virtual std::unique_ptr<Communicator> IssueSplit(Call call, const std::vector<std::vector<int>>& groups, size_t mine,
                                                   int mine_rank, const std::string& name) = 0;
  virtual std::string RankText(int member) const = 0;  // "rank 3 (dp1 tp1)"

 private:
  void Expect(bool good, std::string_view op, std::string_view what) const;
  WorkPtr CheckAndIssue(Call call);
};

// "[rank 3 (..)] all_reduce Float[4] sum in group 'tp', sequence number 7"
std::string OpText(const std::string& rank_text, const Call& own, const std::string& group, uint64_t sequence);

// The echo of a failure elsewhere: never the first cause.
class AbortedError : public CommError {
 public:
  using CommError::CommError;
};

}  // namespace trireme::internal
