#pragma once
// Data-parallel training of any torch::nn::Module: every rank runs the same module on its own part of the batch, and
// the gradients that backward leaves are the mean over all ranks (Li et al. 2020, PyTorch Distributed). What PyTorch's
// DistributedDataParallel is in Python:
//
//   Net net;
//   trireme::DistributedDataParallel ddp(net, world);
//   auto loss = torch::mse_loss(ddp.Forward(net, x), y);
//   loss.backward();      // gradients are averaged when this returns
//   optimizer.step();
//
// Parameters are cut into buckets in the reverse order of their registration; a bucket's sum over ranks starts as soon
// as backward has written its last gradient, while backward goes on. Gradients are views of the buckets from then on.
//
// Errors: CommError where ranks hold different modules (names, shapes, types) or a rank fails; Error where a parameter
// got no gradient and find_unused_parameters is off (it names them). Threads: one rank, one thread. The module, its
// parameters and the communicator must outlive this object; parameters must not be added, replaced or moved to another
// device or type afterwards.

#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/units.h"
#include "comm/communicator.h"

namespace trireme {

struct DistributedDataParallelOptions {
  Bytes bucket{25 * 1024 * 1024};
  Bytes first_bucket{1024 * 1024};      // the one that backward fills first: small, so that communication begins early
  bool find_unused_parameters = false;  // a parameter may get no gradient on some rank (0) or on all (left as it is)
  bool broadcast_buffers = true;        // rank 0's buffers (batch norm statistics) before each training Forward
};

class DistributedDataParallel {
 public:
  using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

  // module: a torch::nn::ModuleHolder (TORCH_MODULE), or a pointer to a module. Collective: rank 0's parameters and
  // buffers are copied to all.
  template <class Module>
  DistributedDataParallel(Module& module, Communicator& comm, DistributedDataParallelOptions options = {})
      : DistributedDataParallel(Named(module->named_parameters()), Named(module->named_buffers()), comm, options) {}

  // For parameters that belong to no module. Only those that require a gradient are reduced.
  DistributedDataParallel(NamedTensors parameters, NamedTensors buffers, Communicator& comm,
                          DistributedDataParallelOptions options);
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // module->forward(inputs...), after the buffers are made equal.
  template <class Module, class... Inputs>
  auto Forward(Module& module, Inputs&&... inputs) {
    PrepareForward(module->is_training());
    return module->forward(std::forward<Inputs>(inputs)...);
  }
  // What Forward does before it calls the module. Collective where there are buffers.
  void PrepareForward(bool training);

  // While it lives, backward only adds to the local gradients: for accumulation. The first backward after it reduces
  // what has been added up.
  class NoSyncGuard {
   public:
    explicit NoSyncGuard(bool& sync) : sync_(sync), before_(sync) { sync_ = false; }
    ~NoSyncGuard() { sync_ = before_; }
    NoSyncGuard(const NoSyncGuard&) = delete;

   private:
    bool& sync_;
    bool before_;
  };
  [[nodiscard]] NoSyncGuard NoSync();

  size_t buckets() const;

 private:
  template <class Dict>
  static NamedTensors Named(const Dict& dict) {
    NamedTensors named;
    for (const auto& item : dict) named.emplace_back(item.key(), item.value());
    return named;
  }

  class Reducer;
  std::unique_ptr<Reducer> reducer_;
};

}  // namespace trireme
