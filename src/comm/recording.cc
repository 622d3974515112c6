#include "comm/recording.h"

#include <chrono>

namespace trireme {

void CommRecorder::Add(const std::string& group, const std::string& op, const CommCount& count) {
  CommCount& total = counts_[group][op];
  total.calls += count.calls;
  total.bytes += count.bytes;
  total.waited += count.waited;
}

CommCount CommRecorder::Total(const std::string& group) const {
  CommCount total;
  const auto found = counts_.find(group);
  if (found == counts_.end()) return total;
  for (const auto& [op, count] : found->second) {
    total.calls += count.calls;
    total.bytes += count.bytes;
    total.waited += count.waited;
  }
  return total;
}

namespace {

class RecordingWork final : public Work {
 public:
  RecordingWork(WorkPtr inner, CommRecorder& recorder, std::string group, std::string op)
      : inner_(std::move(inner)), recorder_(recorder), group_(std::move(group)), op_(std::move(op)) {}

  void Wait() override {
    const auto start = std::chrono::steady_clock::now();
    inner_->Wait();
    const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
    recorder_.Add(group_, op_, {.waited = Seconds(waited.count())});
  }

 private:
  WorkPtr inner_;
  CommRecorder& recorder_;
  std::string group_, op_;
};

class RecordingCommunicator final : public Communicator {
 public:
  RecordingCommunicator(std::unique_ptr<Communicator> inner, CommRecorder& recorder)
      : inner_(std::move(inner)), recorder_(recorder) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  const std::string& name() const override { return inner_->name(); }
  const std::vector<int>& ranks() const override { return inner_->ranks(); }

  WorkPtr AllReduce(const at::Tensor& tensor, ReduceOp op) override {
    return Count("all_reduce", 2 * Others(tensor), inner_->AllReduce(tensor, op));
  }
  WorkPtr ReduceScatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) override {
    return Count("reduce_scatter", Others(in), inner_->ReduceScatter(out, in, op));
  }
  WorkPtr AllGather(const at::Tensor& out, const at::Tensor& in) override {
    return Count("all_gather", Others(out), inner_->AllGather(out, in));
  }
  WorkPtr Broadcast(const at::Tensor& tensor, int root) override {
    const int64_t bytes = root == rank() && size() > 1 ? int64_t(tensor.nbytes()) : 0;
    return Count("broadcast", bytes, inner_->Broadcast(tensor, root));
  }
  WorkPtr AllToAll(const at::Tensor& out, const at::Tensor& in, const std::vector<int64_t>& out_rows,
                   const std::vector<int64_t>& in_rows) override {
    WorkPtr work = inner_->AllToAll(out, in, out_rows, in_rows);  // checks the rows first
    const int64_t rows = in.size(0), others = rows - in_rows[size_t(rank())];
    return Count("all_to_all", rows > 0 ? int64_t(in.nbytes()) / rows * others : 0, std::move(work));
  }
  WorkPtr Send(const at::Tensor& tensor, int to) override {
    return Count("send", int64_t(tensor.nbytes()), inner_->Send(tensor, to));
  }
  WorkPtr Recv(const at::Tensor& tensor, int from) override { return Count("recv", 0, inner_->Recv(tensor, from)); }
  WorkPtr Barrier() override { return Count("barrier", 0, inner_->Barrier()); }

  std::unique_ptr<Communicator> Split(const std::vector<std::vector<int>>& groups, std::string name) override {
    return Record(inner_->Split(groups, std::move(name)), recorder_);
  }
  void Abort(std::string_view reason) override { inner_->Abort(reason); }

 private:
  // (n-1)/n of the tensor. Double: n need not divide the size of an all-reduce.
  double Others(const at::Tensor& tensor) const { return double(tensor.nbytes()) * (size() - 1) / size(); }

  WorkPtr Count(const char* op, double bytes, WorkPtr work) {
    recorder_.Add(name(), op, {.calls = 1, .bytes = Bytes(static_cast<int64_t>(bytes + 0.5))});
    return std::make_unique<RecordingWork>(std::move(work), recorder_, name(), op);
  }

  std::unique_ptr<Communicator> inner_;
  CommRecorder& recorder_;
};

}  // namespace

std::unique_ptr<Communicator> Record(std::unique_ptr<Communicator> inner, CommRecorder& recorder) {
  return std::make_unique<RecordingCommunicator>(std::move(inner), recorder);
}

}  // namespace trireme
