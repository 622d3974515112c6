#include "trireme/distributed_data_parallel.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>
#include <xxhash.h>

#include <algorithm>

namespace trireme {
namespace {

using NamedTensors = DistributedDataParallel::NamedTensors;

// Every rank must hold the same tensors: compared by name, type and shape before anything is sent that would not fit.
void CheckEqualOnAllRanks(const NamedTensors& tensors, const char* what, Communicator& comm) {
  std::string text;
  for (const auto& [name, t] : tensors) {
    text += fmt::format("{} {} {}", name, c10::toString(t.scalar_type()), t.requires_grad());
    for (const int64_t size : t.sizes()) text += fmt::format(",{}", size);
    text += "\n";
  }
  at::Tensor least = at::zeros({3}, at::kLong);
  int64_t* v = least.mutable_data_ptr<int64_t>();
  v[0] = static_cast<int64_t>(XXH3_64bits(text.data(), text.size()) >> 1);
  v[1] = static_cast<int64_t>(tensors.size());
  v[2] = -v[0];
  const int64_t own = v[0];
  comm.AllReduce(least, ReduceOp::kMin)->Wait();
  if (v[0] != own || -v[2] != own) {
    throw CommError(fmt::format(
        "[rank {}] DistributedDataParallel: expected the same {} (names, types, shapes) on every rank of group "
        "'{}', but they differ; build the same module everywhere. Here:\n{}",
        comm.ranks()[static_cast<size_t>(comm.rank())], what, comm.name(), text));
  }
}

void Broadcast(const NamedTensors& tensors, Communicator& comm) {
  const at::NoGradGuard no_grad;
  for (const auto& [name, t] : tensors) {
    at::Tensor data = t.detach();
    if (data.is_contiguous()) {
      comm.Broadcast(data, 0)->Wait();
    } else {
      at::Tensor copy = data.contiguous();
      comm.Broadcast(copy, 0)->Wait();
      data.copy_(copy);
    }
  }
}

}  // namespace

class DistributedDataParallel::Reducer {
 public:
  Reducer(NamedTensors parameters, NamedTensors buffers, Communicator& comm, DistributedDataParallelOptions options)
      : comm_(comm), options_(options), buffers_(std::move(buffers)) {
    CheckEqualOnAllRanks(parameters, "parameters", comm);
    CheckEqualOnAllRanks(buffers_, "buffers", comm);
    Broadcast(parameters, comm);
    Broadcast(buffers_, comm);
    for (auto& [name, parameter] : parameters) {
      if (parameter.requires_grad()) parameters_.push_back({.name = std::move(name), .tensor = parameter});
    }
    MakeBuckets();
    for (size_t i = 0; i < parameters_.size(); ++i) {
      auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
      using torch::autograd::variable_list;
      accumulator->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
          [this, i, alive = std::weak_ptr<bool>(alive_)](const variable_list& outputs, const variable_list&) {
            if (!alive.expired()) Written(i);
            return outputs;
          }));
      accumulators_.push_back(accumulator);
    }
  }

  void PrepareForward(bool training) {
    if (training && options_.broadcast_buffers && sync_) Broadcast(buffers_, comm_);
  }
  bool& sync() { return sync_; }
  size_t buckets() const { return buckets_.size(); }

 private:
  struct Parameter {
    std::string name;
    at::Tensor tensor;
    size_t bucket = 0;
    at::Tensor view;  // its place in the bucket, in its own shape
    bool written = false;
  };
  struct Bucket {
    at::Tensor flat;
    std::vector<size_t> parameters;
    size_t missing = 0;
    WorkPtr sum;
  };

  // In reverse: what is registered last is used last, and gets its gradient first.
  void MakeBuckets() {
    int64_t bytes = 0;
    for (size_t i = parameters_.size(); i-- > 0;) {
      const at::Tensor& t = parameters_[i].tensor;
      const int64_t limit = buckets_.size() <= 1 ? options_.first_bucket.value : options_.bucket.value;
      const bool same_type =
          !buckets_.empty() && parameters_[buckets_.back().parameters[0]].tensor.scalar_type() == t.scalar_type();
      if (!same_type || bytes >= limit) {
        buckets_.emplace_back();
        bytes = 0;
      }
      parameters_[i].bucket = buckets_.size() - 1;
      buckets_.back().parameters.push_back(i);
      bytes += static_cast<int64_t>(t.nbytes());
    }
    for (Bucket& bucket : buckets_) {
      int64_t elements = 0;
      for (const size_t i : bucket.parameters) elements += parameters_[i].tensor.numel();
      bucket.flat = at::zeros({elements}, parameters_[bucket.parameters[0]].tensor.options().requires_grad(false));
      int64_t at = 0;
      for (const size_t i : bucket.parameters) {
        const at::Tensor& t = parameters_[i].tensor;
        // Not a view in autograd's eyes: optimizers detach gradients in place, which views refuse.
        parameters_[i].view = at::from_blob(
            static_cast<char*>(bucket.flat.data_ptr()) + at * static_cast<int64_t>(t.element_size()), t.sizes(),
            [flat = bucket.flat](void*) {}, bucket.flat.options());
        at += t.numel();
      }
    }
  }

  // Backward has added to the gradient of parameter i.
  void Written(size_t i) {
    if (!sync_) return;
    if (!under_way_) Begin();
    Parameter& p = parameters_[i];
    if (p.written) return;
    p.written = true;
    IntoBucket(p);
    if (--buckets_[p.bucket].missing == 0) SendReady();
  }

  // The optimizer may have dropped the gradient, or an accumulating backward may have made one elsewhere.
  void IntoBucket(Parameter& p) {
    at::Tensor& grad = p.tensor.mutable_grad();
    if (grad.defined() && grad.data_ptr() == p.view.data_ptr()) return;
    const at::NoGradGuard no_grad;
    if (grad.defined()) {
      p.view.copy_(grad);
    } else {
      p.view.zero_();
    }
    grad = p.view;
  }

  void Begin() {
    under_way_ = true;
    next_ = 0;
    for (Parameter& p : parameters_) p.written = false;
    for (Bucket& bucket : buckets_) bucket.missing = bucket.parameters.size();
    torch::autograd::Engine::get_default_engine().queue_callback([this] { Finish(); });
  }

  // Buckets leave in their order, the same on every rank.
  void SendReady() {
    for (; next_ < buckets_.size() && buckets_[next_].missing == 0; ++next_) {
      buckets_[next_].sum = comm_.AllReduce(buckets_[next_].flat);
    }
  }

  // Runs when backward is through.
  void Finish() {
    under_way_ = false;
    std::vector<size_t> unused;
    for (size_t i = 0; i < parameters_.size(); ++i) {
      if (!parameters_[i].written) unused.push_back(i);
    }
    if (!unused.empty() && !options_.find_unused_parameters) FailUnused(unused);
    std::vector<at::Tensor> before;
    for (const size_t i : unused) {
      before.push_back(parameters_[i].tensor.mutable_grad());
      if (before.back().defined()) before.back() = before.back().clone();
      IntoBucket(parameters_[i]);
      --buckets_[parameters_[i].bucket].missing;
    }
    SendReady();
    at::Tensor used;
    if (options_.find_unused_parameters) {
      used = at::zeros({static_cast<int64_t>(parameters_.size())}, at::kLong);
      for (size_t i = 0; i < parameters_.size(); ++i) used.mutable_data_ptr<int64_t>()[i] = parameters_[i].written;
      comm_.AllReduce(used, ReduceOp::kMax)->Wait();
    }
    const at::NoGradGuard no_grad;
    for (Bucket& bucket : buckets_) {
      bucket.sum->Wait();
      bucket.sum.reset();
      bucket.flat.mul_(1.0 / comm_.size());
    }
    for (size_t u = 0; u < unused.size(); ++u) {  // used on no rank: as if nothing had happened
      if (used.const_data_ptr<int64_t>()[unused[u]] == 0) parameters_[unused[u]].tensor.mutable_grad() = before[u];
    }
  }

  void FailUnused(const std::vector<size_t>& unused) {
    std::string names;
    for (const size_t i : unused) names += (names.empty() ? "" : ", ") + parameters_[i].name;
    const std::string error = fmt::format(
        "[rank {}] DistributedDataParallel: expected backward to reach every parameter, but {} got no "
        "gradient; let the loss depend on all, or set find_unused_parameters",
        comm_.ranks()[static_cast<size_t>(comm_.rank())], names);
    comm_.Abort(error);
    for (Bucket& bucket : buckets_) {
      try {
        if (bucket.sum) bucket.sum->Wait();
      } catch (const CommError&) {  // the abort
      }
      bucket.sum.reset();
    }
    throw Error(error);
  }

  Communicator& comm_;
  const DistributedDataParallelOptions options_;
  NamedTensors buffers_;
  std::vector<Parameter> parameters_;
  std::vector<Bucket> buckets_;
  std::vector<decltype(torch::autograd::impl::grad_accumulator(std::declval<const at::Tensor&>()))> accumulators_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  // hooks outlive this object
  bool sync_ = true, under_way_ = false;
  size_t next_ = 0;  // bucket that leaves next
};

DistributedDataParallel::DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, Communicator& comm,
                                                 DistributedDataParallelOptions options)
    : reducer_(std::make_unique<Reducer>(std::move(parameters), std::move(buffers), comm, options)) {}
DistributedDataParallel::~DistributedDataParallel() = default;

void DistributedDataParallel::PrepareForward(bool training) { reducer_->PrepareForward(training); }
DistributedDataParallel::NoSyncGuard DistributedDataParallel::NoSync() { return NoSyncGuard(reducer_->sync()); }
size_t DistributedDataParallel::buckets() const { return reducer_->buckets(); }

}  // namespace trireme
