#pragma once
// Sums gradients over data-parallel ranks while backward still runs. Buckets are ranges of the flat gradient buffer,
// decided at construction from the parameter table alone: equal on all ranks. A bucket leaves when the last of its
// units is ready; one reduction of a bucket per optimizer step, however many micro-batches were accumulated.

#include <map>
#include <memory>
#include <vector>

#include "base/units.h"
#include "comm/communicator.h"
#include "data_parallel/param_store.h"

namespace trireme {

class Reducer {
 public:
  // grad: ranks that hold the same piece of each parameter (dp x cp). tp: for pieces whose gradient is partial over
  // their replicas (shared key and value heads), summed over those first. All must outlive the reducer.
  Reducer(ParamStore& params, Communicator& grad, Communicator& tp, Bytes bucket = Bytes(25 << 20));
  ~Reducer();

  // Call for each unit when its gradients are complete in the step's last micro-batch, in buffer order.
  void UnitReady(int unit);
  // Waits until all gradients are reduced. All units must have been ready. Then the next step may begin.
  void Finish();

  const std::vector<ElementRange>& buckets() const { return buckets_; }

 private:
  ParamStore& params_;
  Communicator& grad_;
  std::unique_ptr<Communicator> replicas_;            // tensor-parallel ranks that hold the same piece
  std::map<int, std::vector<ElementRange>> partial_;  // by unit: summed over replicas_ first
  std::vector<ElementRange> buckets_;
  std::vector<WorkPtr> works_;
  size_t ready_ = 0;  // units of this step that are ready
};

}  // namespace trireme
