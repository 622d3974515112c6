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

using internal::Call;
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

// One rank's view that its works share.
template <class WorldState>
struct View {
  std::shared_ptr<WorldState> world;
  std::shared_ptr<ThreadGroup> group;
  int rank = 0;
  std::function<std::string(int)> describe;

  std::string RankText(int member) const { return DescribeRank(group->ranks[size_t(member)], describe); }
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
      throw internal::AbortedError(fmt::format("{}: {}", text_, view_->world->Reason()));
  }

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
class ThreadCommunicator final : public internal::CallCommunicator {
 public:
  explicit ThreadCommunicator(View<WorldState> view)
      : view_(std::make_shared<const View<WorldState>>(std::move(view))) {}

  int rank() const override { return view_->rank; }
  const std::string& name() const override { return view_->group->name; }
  const std::vector<int>& ranks() const override { return view_->group->ranks; }
  void Abort(std::string_view reason) override { view_->world->Abort(reason); }

 protected:
  std::string RankText(int member) const override { return view_->RankText(member); }

  WorkPtr Issue(Call call) override {
    if (call.kind != OpKind::kSendRecv) return Collective({std::move(call)});
    const bool send = call.in.defined();
    const int from = send ? rank() : call.peer, to = send ? call.peer : rank();
    const uint64_t sequence = send ? sent_[to]++ : received_[from]++;
    return Post({from, to, sequence}, {from, to}, send ? 0 : 1, {std::move(call)});
  }

  std::unique_ptr<Communicator> IssueSplit(Call call, const std::vector<std::vector<int>>& groups, size_t mine,
                                           int mine_rank, const std::string& name) override {
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
    Collective({std::move(call)}, make, &op)->Wait();
    return std::make_unique<ThreadCommunicator>(
        View<WorldState>{view_->world, op->split[mine], mine_rank, view_->describe});
  }

 private:
  using WhenReady = std::function<void(ThreadOp&)>;

  WorkPtr Collective(OpEntry entry, const WhenReady& when_ready = {}, std::shared_ptr<ThreadOp>* keep = nullptr) {
    std::vector<int> members(static_cast<size_t>(size()));
    for (size_t i = 0; i < members.size(); ++i) members[i] = static_cast<int>(i);
    return Post({-1, -1, sequence_++}, std::move(members), size_t(rank()), std::move(entry), when_ready, keep);
  }

  WorkPtr Post(const internal::OpKey& key, std::vector<int> members, size_t index, OpEntry entry,
               const WhenReady& when_ready = {}, std::shared_ptr<ThreadOp>* keep = nullptr) {
    ThreadGroup& group = *view_->group;
    std::shared_ptr<ThreadOp> op;
    std::string text = internal::OpText(RankText(rank()), entry, name(), std::get<2>(key));
    bool last = false;
    {
      const std::lock_guard lock(group.mutex);
      auto& slot = group.waiting[key];
      if (!slot) {
        slot = std::make_shared<ThreadOp>();
        slot->entries.resize(members.size());
        slot->members = std::move(members);
      }
      op = slot;
      op->entries[index] = std::move(entry);
      op->entries[index].arrived = true;
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
      std::vector<std::pair<std::string, std::string>> sides;
      for (size_t i = 0; i < op.members.size(); ++i) {
        sides.emplace_back(view_->RankText(op.members[i]), internal::CallText(op.entries[i]));
      }
      op.error = internal::MismatchText(mismatch, sides);
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
    } catch (const internal::AbortedError& e) {
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
