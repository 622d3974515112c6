#include "comm/thread_world.h"

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>

#include "comm/thread_op.h"

namespace trireme {

using internal::OpEntry;
using internal::OpKind;
using internal::ThreadGroup;
using internal::ThreadOp;

namespace internal {

// Shared by all members of one group. `op_key`: sender, receiver, sequence; collectives have no peers (-1).
using OpKey = std::tuple<int, int, uint64_t>;
struct ThreadGroup {
  std::string name;
  std::vector<int> ranks;
  std::mutex mutex;
  std::condition_variable changed;
  std::map<OpKey, std::shared_ptr<ThreadOp>> waiting;  // operations that not all members have reached
};

}  // namespace internal

struct ThreadWorld::State {
  double timeout_s = 0;
  std::shared_ptr<ThreadGroup> world;
  std::atomic<bool> aborted = false;
  std::mutex mutex;  // guards the rest; taken after a group's mutex, never before
  std::string reason;
  std::vector<std::weak_ptr<ThreadGroup>> groups;

  void Register(const std::shared_ptr<ThreadGroup>& group) {
    const std::lock_guard lock(mutex);
    groups.push_back(group);
  }

  std::string Reason() {
    const std::lock_guard lock(mutex);
    return reason;
  }

  void Abort(std::string_view why) {
    std::vector<std::weak_ptr<ThreadGroup>> all;
    {
      const std::lock_guard lock(mutex);
      if (aborted) return;
      reason = why;
      aborted = true;
      all = groups;
    }
    for (const auto& weak : all) {
      if (const auto group = weak.lock()) {
        const std::lock_guard lock(group->mutex);
        group->changed.notify_all();
      }
    }
  }
};

namespace {

// The echo of a failure elsewhere: never the first cause.
class AbortedError : public CommError {
 public:
  using CommError::CommError;
};

// One rank's view that its works share.
template <class WorldState>
struct View {
  std::shared_ptr<WorldState> world;
  std::shared_ptr<ThreadGroup> group;
  int rank = 0;
  std::function<std::string(int)> describe;

  std::string RankText(int member) const {
    const int world_rank = group->ranks[size_t(member)];
    const std::string where = describe ? describe(world_rank) : "";
    return fmt::format("rank {}{}{}", world_rank, where.empty() ? "" : " ", where);
  }

  std::string OpText(const ThreadOp& op, const OpEntry& own) const {
    return fmt::format("[{}] {} in group '{}', sequence number {}", RankText(rank), EntryText(own), group->name,
                       op.sequence);
  }
};

void RunChunks(ThreadGroup& group, ThreadOp& op, int64_t limit) {
  for (; limit > 0; --limit) {
    const int64_t chunk = op.next_chunk.fetch_add(1);
    if (chunk >= op.chunks) return;
    RunChunk(op, chunk);
    if (op.done_chunks.fetch_add(1) + 1 < op.chunks) continue;
    const std::lock_guard lock(group.mutex);
    for (OpEntry& entry : op.entries) entry.in = entry.out = at::Tensor();
    op.complete = true;
    group.changed.notify_all();
  }
}

template <class WorldState>
class ThreadWork final : public Work {
 public:
  ThreadWork(std::shared_ptr<const View<WorldState>> view, std::shared_ptr<ThreadOp> op, std::string text)
      : view_(std::move(view)), op_(std::move(op)), text_(std::move(text)), exceptions_(std::uncaught_exceptions()) {}

  ~ThreadWork() override {
    if (waited_) return;
    // The rank is failing: it will not come to the operations its peers wait for, nor they to this one.
    if (std::uncaught_exceptions() > exceptions_) {
      view_->world->Abort(fmt::format("{} failed with operations under way", view_->RankText(view_->rank)));
    }
    try {
      Wait();
    } catch (const std::exception&) {  // lost by contract
    }
  }

  void Wait() override {
    if (!waited_) {
      WaitReady();
      // From here on no peer is needed. Also after an abort the chunks end before the caller may free its tensors.
      if (op_->ready) {
        RunChunks(*view_->group, *op_, op_->chunks);
        WaitComplete();
      }
      waited_ = true;
    }
    if (op_->failed && !op_->abandoned) throw CommError(fmt::format("{}: {}", text_, op_->error));
    if (op_->abandoned || view_->world->aborted)
      throw AbortedError(fmt::format("{}: {}", text_, view_->world->Reason()));
  }

  bool Done() const override { return waited_ || op_->complete || op_->failed || view_->world->aborted; }

 private:
  static constexpr int kSpins = 200;

  void WaitReady() {
    const auto over = [&] { return op_->ready || op_->failed || view_->world->aborted; };
    for (int i = 0; i < kSpins && !over(); ++i) std::this_thread::yield();
    std::unique_lock lock(view_->group->mutex);
    const double seconds = view_->world->timeout_s;
    if (!view_->group->changed.wait_for(lock, std::chrono::duration<double>(seconds), over)) {
      std::string late;
      for (size_t i = 0; i < op_->members.size(); ++i) {
        if (!op_->entries[i].arrived) late += (late.empty() ? "" : ", ") + view_->RankText(op_->members[i]);
      }
      op_->error = fmt::format(
          "expected all {} members within {} s (train.timeout_s), missing: {}; see what they did last, or raise "
          "train.timeout_s if they are only slow",
          op_->members.size(), seconds, late);
      op_->failed = true;
      view_->group->changed.notify_all();
    } else if (!op_->ready && !op_->failed) {
      // Whoever comes late must not start on tensors that this rank is about to free.
      op_->error = view_->world->Reason();
      op_->abandoned = true;
      op_->failed = true;
    }
  }

  void WaitComplete() {
    for (int i = 0; i < kSpins && !op_->complete; ++i) std::this_thread::yield();
    std::unique_lock lock(view_->group->mutex);
    view_->group->changed.wait(lock, [&] { return op_->complete.load(); });
  }

  std::shared_ptr<const View<WorldState>> view_;
  std::shared_ptr<ThreadOp> op_;
  std::string text_;
  int exceptions_;
  bool waited_ = false;
};

template <class WorldState>
class ThreadCommunicator final : public Communicator {
 public:
  explicit ThreadCommunicator(View<WorldState> view)
      : view_(std::make_shared<const View<WorldState>>(std::move(view))) {}

  int rank() const override { return view_->rank; }
  int size() const override { return static_cast<int>(ranks().size()); }
  const std::string& name() const override { return view_->group->name; }
  const std::vector<int>& ranks() const override { return view_->group->ranks; }

  WorkPtr AllReduce(const at::Tensor& tensor, ReduceOp op) override {
    return Collective({.name = "all_reduce", .kind = OpKind::kAllReduce, .in = tensor, .out = tensor, .reduce = op});
  }
  WorkPtr ReduceScatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) override {
    Expect(out.numel() * size() == in.numel(), "reduce_scatter", "out.numel() * size() == in.numel()");
    return Collective({.name = "reduce_scatter", .kind = OpKind::kReduceScatter, .in = in, .out = out, .reduce = op});
  }
  WorkPtr AllGather(const at::Tensor& out, const at::Tensor& in) override {
    Expect(in.numel() * size() == out.numel(), "all_gather", "in.numel() * size() == out.numel()");
    return Collective({.name = "all_gather", .kind = OpKind::kAllGather, .in = in, .out = out});
  }
  WorkPtr Broadcast(const at::Tensor& tensor, int root) override {
    Expect(root >= 0 && root < size(), "broadcast", "a root in the group");
    return Collective({.name = "broadcast", .kind = OpKind::kBroadcast, .in = tensor, .out = tensor, .root = root});
  }
  WorkPtr AllToAll(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_rows,
                   const std::vector<int64_t>& in_rows) override {
    const auto fits = [&](const at::Tensor& t, const std::vector<int64_t>& rows) {
      int64_t sum = 0;
      for (const int64_t r : rows) sum = r < 0 ? INT64_MIN / 2 : sum + r;
      return rows.size() == size_t(size()) && t.dim() > 0 && sum == t.size(0);
    };
    Expect(fits(out, out_rows) && fits(in, in_rows), "all_to_all", "size() row counts that add up to the rows");
    Expect(in.numel() == 0 || size() == 1 || in.const_data_ptr() != out.const_data_ptr(), "all_to_all",
           "different tensors for in and out");
    return Collective({.name = "all_to_all",
                       .kind = OpKind::kAllToAll,
                       .in = in,
                       .out = out,
                       .in_rows = in_rows,
                       .out_rows = out_rows});
  }
  WorkPtr Send(const at::Tensor& tensor, int to) override {
    Expect(to >= 0 && to < size(), "send", "a receiver in the group");
    return Post({rank(), to, sent_[to]++}, {rank(), to}, 0, {.name = "send", .kind = OpKind::kSendRecv, .in = tensor});
  }
  WorkPtr Recv(const at::Tensor& tensor, int from) override {
    Expect(from >= 0 && from < size(), "recv", "a sender in the group");
    return Post({from, rank(), received_[from]++}, {from, rank()}, 1,
                {.name = "recv", .kind = OpKind::kSendRecv, .out = tensor});
  }
  WorkPtr Barrier() override { return Collective({.name = "barrier", .kind = OpKind::kBarrier}); }

  std::unique_ptr<Communicator> Split(const std::vector<std::vector<int>>& groups, std::string name) override {
    std::vector<int> seen(size_t(size()), 0);
    std::string text = fmt::format("'{}'", name);
    size_t mine = 0;
    int mine_rank = 0;
    for (size_t g = 0; g < groups.size(); ++g) {
      text += " {";
      for (size_t i = 0; i < groups[g].size(); ++i) {
        const int member = groups[g][i];
        Expect(member >= 0 && member < size() && seen[size_t(member)]++ == 0, "split",
               "lists that partition the group");
        text += fmt::format("{}{}", i ? "," : "", member);
        if (member == rank()) mine = g, mine_rank = static_cast<int>(i);
      }
      text += "}";
    }
    Expect(std::count(seen.begin(), seen.end(), 1) == size(), "split", "lists that partition the group");
    std::shared_ptr<ThreadOp> op;
    const auto make = [&](ThreadOp& ready) {  // by the last member to come
      for (const auto& list : groups) {
        auto group = std::make_shared<ThreadGroup>();
        group->name = name;
        for (const int member : list) group->ranks.push_back(ranks()[size_t(member)]);
        view_->world->Register(group);
        ready.split.push_back(std::move(group));
      }
    };
    Collective({.name = "split", .kind = OpKind::kSplit, .text = std::move(text)}, make, &op)->Wait();
    return std::make_unique<ThreadCommunicator>(
        View<WorldState>{view_->world, op->split[mine], mine_rank, view_->describe});
  }

  void Abort(std::string_view reason) override { view_->world->Abort(reason); }

 private:
  using WhenReady = std::function<void(ThreadOp&)>;

  void Expect(bool good, std::string_view op, std::string_view what) const {
    if (!good) {
      throw CommError(
          fmt::format("[{}] {} in group '{}' of {}: expected {}", view_->RankText(rank()), op, name(), size(), what));
    }
  }

  WorkPtr Collective(OpEntry entry, const WhenReady& when_ready = {}, std::shared_ptr<ThreadOp>* keep = nullptr) {
    std::vector<int> members(static_cast<size_t>(size()));
    for (size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
    return Post({-1, -1, sequence_++}, std::move(members), size_t(rank()), std::move(entry), when_ready, keep);
  }

  WorkPtr Post(const internal::OpKey& key, std::vector<int> members, size_t index, OpEntry entry,
               const WhenReady& when_ready = {}, std::shared_ptr<ThreadOp>* keep = nullptr) {
    for (const at::Tensor* t : {&entry.in, &entry.out}) {
      if (t->defined()) Expect(t->is_cpu() && t->is_contiguous(), entry.name, "a contiguous CPU tensor");
    }
    if (entry.kind == OpKind::kAllReduce || entry.kind == OpKind::kReduceScatter) {
      Expect(internal::CanReduce(entry.in.scalar_type()), entry.name, "a type that can be summed");
    }
    if (entry.in.defined() && entry.out.defined()) {
      Expect(entry.in.scalar_type() == entry.out.scalar_type(), entry.name, "one type for in and out");
    }
    ThreadGroup& group = *view_->group;
    std::shared_ptr<ThreadOp> op;
    std::string text;
    bool last = false;
    {
      const std::lock_guard lock(group.mutex);
      auto& slot = group.waiting[key];
      if (!slot) {
        slot = std::make_shared<ThreadOp>();
        slot->sequence = std::get<2>(key);
        slot->entries.resize(members.size());
        slot->members = std::move(members);
      }
      op = slot;
      op->entries[index] = std::move(entry);
      op->entries[index].arrived = true;
      text = view_->OpText(*op, op->entries[index]);
      if (++op->arrived == op->members.size()) {
        group.waiting.erase(key);
        last = !op->failed && !view_->world->aborted;
        if (last) MakeReady(*op, when_ready);
        last = op->ready;
      }
    }
    // Its share at once, so that reductions move on while the ranks compute.
    const int64_t n = static_cast<int64_t>(op->members.size());
    if (last) RunChunks(group, *op, (op->chunks + n - 1) / n);
    if (keep) *keep = op;
    return std::make_unique<ThreadWork<WorldState>>(view_, std::move(op), std::move(text));
  }

  void MakeReady(ThreadOp& op, const WhenReady& when_ready) {
    const std::string mismatch = internal::Mismatch(op);
    if (mismatch.empty()) {
      op.chunks = internal::CountChunks(op);
      if (when_ready) when_ready(op);
      if (op.chunks == 0) op.complete = true;
      op.ready = true;
    } else {
      op.error = fmt::format("expected the same call on every member, but {}:", mismatch);
      for (size_t i = 0; i < op.members.size(); ++i) {
        op.error += fmt::format(" {}: {};", view_->RankText(op.members[i]), EntryText(op.entries[i]));
      }
      op.error += " make all members issue the same operations in the same order";
      op.failed = true;
    }
    view_->group->changed.notify_all();
  }

  std::shared_ptr<const View<WorldState>> view_;
  uint64_t sequence_ = 0;
  std::map<int, uint64_t> sent_, received_;
};

}  // namespace

ThreadWorld::ThreadWorld(int size, std::chrono::duration<double> timeout) : state_(std::make_shared<State>()) {
  TRIREME_CHECK(size > 0, "a world of {} ranks", size);
  state_->timeout_s = timeout.count();
  state_->world = std::make_shared<ThreadGroup>();
  state_->world->name = "world";
  for (int r = 0; r < size; ++r) state_->world->ranks.push_back(r);
  state_->Register(state_->world);
}

ThreadWorld::~ThreadWorld() = default;

std::unique_ptr<Communicator> ThreadWorld::Join(int rank, std::function<std::string(int)> describe) {
  return std::make_unique<ThreadCommunicator<State>>(View<State>{state_, state_->world, rank, std::move(describe)});
}

void RunThreadRanks(int ranks, std::chrono::duration<double> timeout,
                    const std::function<void(Communicator& world)>& body, std::function<std::string(int)> describe) {
  ThreadWorld world(ranks, timeout);
  std::mutex mutex;
  std::exception_ptr cause, echo;
  const auto run = [&](int rank) {
    const auto comm = world.Join(rank, describe);
    const auto fail = [&](std::exception_ptr& first, std::string_view what) {
      {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
      }
      comm->Abort(fmt::format("rank {} failed: {}", rank, what));
    };
    try {
      body(*comm);
    } catch (const AbortedError& e) {
      fail(echo, e.what());
    } catch (const std::exception& e) {
      fail(cause, e.what());
    } catch (...) {
      fail(cause, "unknown exception");
    }
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) threads.emplace_back(run, rank);
  for (std::thread& thread : threads) thread.join();
  if (cause || echo) std::rethrow_exception(cause ? cause : echo);
}

}  // namespace trireme
