#include "comm/peer_world.h"

#include <ATen/ops/full.h>

#include <condition_variable>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <thread>

#include "comm/peer_executor.h"

namespace trireme::internal {
namespace {

// The collectives of one group in order. Whoever finds the next one undone and nobody at work carries it out: a waiting
// caller, or the worker, which is woken for large ones so that they move on while the rank computes.
class Queue {
 public:
  Queue(std::shared_ptr<PeerState> world, PeerGroup group)
      : world_(std::move(world)), group_(std::move(group)), executor_(*world_, group_) {}
  ~Queue() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
  }

  const PeerGroup& group() const { return group_; }
  PeerState& world() { return *world_; }

  void Push(std::shared_ptr<PeerOp> op, bool wake_worker) {
    {
      const std::lock_guard lock(mutex_);
      waiting_.push_back(std::move(op));
      if (wake_worker && !worker_.joinable()) worker_ = std::thread([this] { Work(); });
      work_ = work_ || wake_worker;
    }
    if (wake_worker) changed_.notify_all();
  }

  void Finish(PeerOp& op) {
    std::unique_lock lock(mutex_);
    while (!op.done) {
      if (!busy_) {
        RunNext(lock);
      } else {
        changed_.wait(lock);
      }
    }
  }

  // Sends and receives wait on the caller's thread, beside the collectives.
  void FinishMessage(PeerOp& op) {
    if (op.done) return;
    PeerExecutor executor(*world_, group_);
    Carry(executor, op);
    op.done = true;
  }
  void StartMessage(PeerOp& op) { PeerExecutor(*world_, group_).Start(op); }

 private:
  void RunNext(std::unique_lock<std::mutex>& lock) {
    const std::shared_ptr<PeerOp> op = waiting_.front();
    waiting_.pop_front();
    busy_ = true;
    lock.unlock();
    Carry(executor_, *op);
    lock.lock();
    busy_ = false;
    op->done = true;
    changed_.notify_all();
  }

  void Carry(PeerExecutor& executor, PeerOp& op) {
    try {
      executor.Run(op);
    } catch (const AbortedError&) {
      op.error = std::current_exception();
    } catch (const std::exception& e) {
      op.error = std::current_exception();
      world_->transport->Abort(e.what());
    }
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [&] { return stop_ || (work_ && !busy_); });
      if (stop_) return;
      while (!waiting_.empty() && !busy_) RunNext(lock);
      if (waiting_.empty()) work_ = false;
    }
  }

  std::shared_ptr<PeerState> world_;
  const PeerGroup group_;
  std::mutex mutex_;
  std::condition_variable changed_;
  PeerExecutor executor_;  // of whoever set busy_
  std::deque<std::shared_ptr<PeerOp>> waiting_;
  bool busy_ = false, work_ = false, stop_ = false;
  std::thread worker_;
};

class PeerWork final : public Work {
 public:
  PeerWork(std::shared_ptr<Queue> queue, std::shared_ptr<PeerOp> op)
      : queue_(std::move(queue)), op_(std::move(op)), exceptions_(std::uncaught_exceptions()) {}
  ~PeerWork() override {
    if (waited_) return;
    if (std::uncaught_exceptions() > exceptions_) {
      PeerState& world = queue_->world();
      world.transport->Abort(
          fmt::format("{} failed with operations under way", world.RankText(world.transport->rank())));
    }
    try {
      Wait();
    } catch (const std::exception&) {  // lost by contract
    }
  }
  void Wait() override {
    if (!waited_) {
      waited_ = true;
      if (op_->call.kind == OpKind::kSendRecv) {
        queue_->FinishMessage(*op_);
      } else {
        queue_->Finish(*op_);
      }
    }
    if (op_->error) std::rethrow_exception(op_->error);
  }

 private:
  std::shared_ptr<Queue> queue_;
  std::shared_ptr<PeerOp> op_;
  int exceptions_;
  bool waited_ = false;
};

class PeerCommunicator final : public CallCommunicator {
 public:
  PeerCommunicator(std::shared_ptr<PeerState> world, PeerGroup group)
      : world_(std::move(world)), queue_(std::make_shared<Queue>(world_, std::move(group))) {}

  int rank() const override { return queue_->group().rank; }
  const std::string& name() const override { return queue_->group().name; }
  const std::vector<int>& ranks() const override { return queue_->group().ranks; }
  void Abort(std::string_view reason) override { world_->transport->Abort(reason); }

 protected:
  std::string RankText(int member) const override { return world_->RankText(ranks()[size_t(member)]); }

  WorkPtr Issue(Call call) override {
    auto op = std::make_shared<PeerOp>();
    if (call.kind == OpKind::kSendRecv) return IssueMessage(std::move(call), std::move(op));
    const size_t bytes = call.tensor().defined() ? call.tensor().nbytes() : 0;
    op->sequence = sequence_++;
    op->text = OpText(RankText(rank()), call, name(), op->sequence);
    op->call = std::move(call);
    queue_->Push(op, size() > 1 && bytes > kWorkerBytes);
    return std::make_unique<PeerWork>(queue_, std::move(op));
  }

  std::unique_ptr<Communicator> IssueSplit(Call call, const std::vector<std::vector<int>>& groups, size_t mine,
                                           int mine_rank, const std::string& name) override {
    // All members agree on the groups' numbers: after any that one of them knows.
    Issue(std::move(call))->Wait();
    at::Tensor next = at::full({1}, world_->next_group, at::kLong);
    AllReduce(next, ReduceOp::kMax)->Wait();
    const int first = static_cast<int>(*next.const_data_ptr<int64_t>());
    world_->next_group = first + static_cast<int>(groups.size());
    TRIREME_CHECK(world_->next_group < (1 << kGroupBits), "{} process groups", world_->next_group);
    PeerGroup group{.name = name, .rank = mine_rank, .id = first + static_cast<int>(mine)};
    for (const int member : groups[mine]) group.ranks.push_back(ranks()[size_t(member)]);
    return std::make_unique<PeerCommunicator>(world_, std::move(group));
  }

 private:
  static constexpr size_t kWorkerBytes = 64 * 1024;

  WorkPtr IssueMessage(Call call, std::shared_ptr<PeerOp> op) {
    const bool send = call.in.defined();
    op->sequence = send ? sent_[call.peer]++ : received_[call.peer]++;
    op->text = OpText(RankText(rank()), call, name(), op->sequence);
    if (call.peer == rank()) MeetOneself(call);
    op->call = std::move(call);
    queue_->StartMessage(*op);
    return std::make_unique<PeerWork>(queue_, std::move(op));
  }

  // A send to oneself meets its receive, whichever came first.
  void MeetOneself(const Call& call) {
    auto& others = call.in.defined() ? own_receives_ : own_sends_;
    if (others.empty()) {
      (call.in.defined() ? own_sends_ : own_receives_).push_back(call.tensor());
      return;
    }
    const at::Tensor &in = call.in.defined() ? call.in : others.front(),
                     &out = call.in.defined() ? others.front() : call.out;
    if (in.nbytes() != out.nbytes())
      throw CommError(fmt::format("[{}] send to itself: sizes differ", RankText(rank())));
    if (in.nbytes() > 0) std::memcpy(out.data_ptr(), in.const_data_ptr(), in.nbytes());
    others.pop_front();
  }

  std::shared_ptr<PeerState> world_;
  std::shared_ptr<Queue> queue_;
  uint64_t sequence_ = 0;
  std::map<int, uint64_t> sent_, received_;
  std::deque<at::Tensor> own_sends_, own_receives_;
};

}  // namespace

std::unique_ptr<Communicator> MakePeerWorld(std::shared_ptr<Transport> transport, std::chrono::duration<double> timeout,
                                            std::function<std::string(int)> describe) {
  PeerGroup group{.name = "world", .rank = transport->rank(), .id = 0};
  for (int r = 0; r < transport->size(); ++r) group.ranks.push_back(r);
  auto world = std::make_shared<PeerState>();
  world->transport = std::move(transport);
  world->timeout = timeout;
  world->describe = std::move(describe);
  return std::make_unique<PeerCommunicator>(std::move(world), std::move(group));
}

}  // namespace trireme::internal
