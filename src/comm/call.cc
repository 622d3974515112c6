#include "comm/call.h"

#include <algorithm>
#include <climits>

#include "comm/reduce.h"

namespace trireme {

std::string DescribeRank(int world_rank, const std::function<std::string(int)>& describe) {
  const std::string where = describe ? describe(world_rank) : "";
  return fmt::format("rank {}{}{}", world_rank, where.empty() ? "" : " ", where);
}

namespace internal {

std::string CallText(const Call& call) {
  std::string text(call.name);
  const at::Tensor& t = call.tensor();
  if (t.defined()) {
    text += fmt::format(" {}[", c10::toString(t.scalar_type()));
    for (int64_t d = 0; d < t.dim(); ++d) text += fmt::format("{}{}", d ? ", " : "", t.size(d));
    text += "]";
  }
  if (call.kind == OpKind::kAllReduce || call.kind == OpKind::kReduceScatter) {
    text += call.reduce == ReduceOp::kSum ? " sum" : call.reduce == ReduceOp::kMax ? " max" : " min";
  }
  if (call.kind == OpKind::kBroadcast) text += fmt::format(" from rank {}", call.root);
  if (!call.text.empty()) text += " " + call.text;
  return text;
}

std::string CallsDiffer(const Call& a, const Call& b) {
  if (a.kind != b.kind || a.root != b.root || a.reduce != b.reduce || a.text != b.text) return "calls differ";
  const at::Tensor &s = a.tensor(), &t = b.tensor();
  if (!s.defined()) return "";
  if (s.scalar_type() != t.scalar_type()) return "types differ";
  if (a.kind != OpKind::kAllToAll && s.sizes() != t.sizes()) return "shapes differ";
  if (a.kind == OpKind::kAllToAll && s.sizes().slice(1) != t.sizes().slice(1)) return "row shapes differ";
  return "";
}

std::string Agreement(const Call& call) {
  std::string text =
      fmt::format("{} {} {} {}", static_cast<int>(call.kind), call.root, static_cast<int>(call.reduce), call.text);
  const at::Tensor& t = call.tensor();
  if (!t.defined()) return text;
  text += c10::toString(t.scalar_type());
  for (int64_t d = call.kind == OpKind::kAllToAll ? 1 : 0; d < t.dim(); ++d) text += fmt::format(",{}", t.size(d));
  return text;
}

std::string MismatchText(std::string_view differ, const std::vector<std::pair<std::string, std::string>>& members) {
  std::string text = fmt::format("expected the same call on every member, but {}:", differ);
  for (const auto& [rank, call] : members) text += fmt::format(" {}: {};", rank, call);
  return text + " make all members issue the same operations in the same order";
}

std::string OpText(const std::string& rank_text, const Call& own, const std::string& group, uint64_t sequence) {
  return fmt::format("[{}] {} in group '{}', sequence number {}", rank_text, CallText(own), group, sequence);
}

void CallCommunicator::Expect(bool good, std::string_view op, std::string_view what) const {
  if (good) return;
  throw CommError(fmt::format("[{}] {} in group '{}' of {}: expected {}", RankText(rank()), op, name(), size(), what));
}

WorkPtr CallCommunicator::CheckAndIssue(Call call) {
  for (const at::Tensor* t : {&call.in, &call.out}) {
    if (t->defined()) Expect(t->is_cpu() && t->is_contiguous(), call.name, "a contiguous CPU tensor");
  }
  if (call.kind == OpKind::kAllReduce || call.kind == OpKind::kReduceScatter) {
    Expect(CanReduce(call.in.scalar_type()), call.name, "a type that can be summed");
  }
  if (call.in.defined() && call.out.defined()) {
    Expect(call.in.scalar_type() == call.out.scalar_type(), call.name, "one type for in and out");
  }
  return Issue(std::move(call));
}

WorkPtr CallCommunicator::AllReduce(const at::Tensor& tensor, ReduceOp op) {
  return CheckAndIssue({.name = "all_reduce", .kind = OpKind::kAllReduce, .in = tensor, .out = tensor, .reduce = op});
}
WorkPtr CallCommunicator::ReduceScatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) {
  Expect(out.numel() * size() == in.numel(), "reduce_scatter", "out.numel() * size() == in.numel()");
  return CheckAndIssue({.name = "reduce_scatter", .kind = OpKind::kReduceScatter, .in = in, .out = out, .reduce = op});
}
WorkPtr CallCommunicator::AllGather(const at::Tensor& out, const at::Tensor& in) {
  Expect(in.numel() * size() == out.numel(), "all_gather", "in.numel() * size() == out.numel()");
  return CheckAndIssue({.name = "all_gather", .kind = OpKind::kAllGather, .in = in, .out = out});
}
WorkPtr CallCommunicator::Broadcast(const at::Tensor& tensor, int root) {
  Expect(root >= 0 && root < size(), "broadcast", "a root in the group");
  return CheckAndIssue({.name = "broadcast", .kind = OpKind::kBroadcast, .in = tensor, .out = tensor, .root = root});
}
WorkPtr CallCommunicator::AllToAll(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_rows,
                                   const std::vector<int64_t>& in_rows) {
  const auto fits = [&](const at::Tensor& t, const std::vector<int64_t>& rows) {
    int64_t sum = 0;
    for (const int64_t r : rows) sum = r < 0 ? INT64_MIN / 2 : sum + r;
    return rows.size() == size_t(size()) && t.dim() > 0 && sum == t.size(0);
  };
  Expect(fits(out, out_rows) && fits(in, in_rows), "all_to_all", "size() row counts that add up to the rows");
  Expect(in.numel() == 0 || size() == 1 || in.const_data_ptr() != out.const_data_ptr(), "all_to_all",
         "different tensors for in and out");
  return CheckAndIssue({.name = "all_to_all",
                        .kind = OpKind::kAllToAll,
                        .in = in,
                        .out = out,
                        .in_rows = in_rows,
                        .out_rows = out_rows});
}
WorkPtr CallCommunicator::Send(const at::Tensor& tensor, int to) {
  Expect(to >= 0 && to < size(), "send", "a receiver in the group");
  return CheckAndIssue({.name = "send", .kind = OpKind::kSendRecv, .in = tensor, .peer = to});
}
WorkPtr CallCommunicator::Recv(const at::Tensor& tensor, int from) {
  Expect(from >= 0 && from < size(), "recv", "a sender in the group");
  return CheckAndIssue({.name = "recv", .kind = OpKind::kSendRecv, .out = tensor, .peer = from});
}
WorkPtr CallCommunicator::Barrier() { return CheckAndIssue({.name = "barrier", .kind = OpKind::kBarrier}); }

std::unique_ptr<Communicator> CallCommunicator::Split(const std::vector<std::vector<int>>& groups, std::string name) {
  std::vector<int> seen(size_t(size()), 0);
  std::string text = fmt::format("'{}'", name);
  size_t mine = 0;
  int mine_rank = 0;
  for (size_t g = 0; g < groups.size(); ++g) {
    text += " {";
    for (size_t i = 0; i < groups[g].size(); ++i) {
      const int member = groups[g][i];
      Expect(member >= 0 && member < size() && seen[size_t(member)]++ == 0, "split", "lists that partition the group");
      text += fmt::format("{}{}", i ? "," : "", member);
      if (member == rank()) mine = g, mine_rank = static_cast<int>(i);
    }
    text += "}";
  }
  Expect(std::count(seen.begin(), seen.end(), 1) == size(), "split", "lists that partition the group");
  return IssueSplit({.name = "split", .kind = OpKind::kSplit, .text = std::move(text)}, groups, mine, mine_rank, name);
}

}  // namespace internal
}  // namespace trireme
