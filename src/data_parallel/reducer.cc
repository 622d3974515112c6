#include "data_parallel/reducer.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {

Reducer::Reducer(ParamStore& params, Communicator& grad, Communicator& tp, Bytes bucket)
    : params_(params), grad_(grad) {
  const auto element = static_cast<int64_t>(params.grads().element_size());
  int64_t replicas = 1;
  for (const LocalParam& param : params.table().params()) {
    if (!param.partial_gradient) continue;
    replicas = param.replicas;
    const ElementRange range = params.RangeOf(param.spec.name);
    std::vector<ElementRange>& ranges = partial_[param.spec.unit];
    if (!ranges.empty() && ranges.back().end == range.begin) {
      ranges.back().end = range.end;  // k and v in one message
    } else {
      ranges.push_back(range);
    }
  }
  if (replicas > 1) {
    std::vector<std::vector<int>> groups;
    for (int rank = 0; rank < tp.size(); ++rank) {
      if (rank % replicas == 0) groups.emplace_back();
      groups.back().push_back(rank);
    }
    replicas_ = tp.Split(groups, "tp");
  }
  for (const int unit : params.units()) {
    const ElementRange range = params.UnitRange(unit);
    if (buckets_.empty() || buckets_.back().size() * element >= bucket.value) {
      buckets_.push_back(range);
    } else {
      buckets_.back().end = range.end;
    }
  }
}

Reducer::~Reducer() = default;

void Reducer::UnitReady(int unit) {
  const std::vector<int>& units = params_.units();
  TRIREME_CHECK(ready_ < units.size() && units[ready_] == unit, "unit {} is ready out of order", unit);
  ++ready_;
  params_.ClearUnwritten(unit);
  if (const auto at = partial_.find(unit); at != partial_.end()) {
    for (const ElementRange& range : at->second)
      replicas_->AllReduce(params_.grads().narrow(0, range.begin, range.size()))->Wait();
  }
  const int64_t end = params_.UnitRange(unit).end;
  const auto bucket = std::ranges::find(buckets_, end, &ElementRange::end);
  if (bucket == buckets_.end() || grad_.size() == 1) return;
  works_.push_back(grad_.AllReduce(params_.grads().narrow(0, bucket->begin, bucket->size())));
}

void Reducer::Finish() {
  TRIREME_CHECK(ready_ == params_.units().size(), "{} of {} units are ready: backward has not run to its end", ready_,
                params_.units().size());
  for (const WorkPtr& work : works_) work->Wait();
  works_.clear();
  ready_ = 0;
}

}  // namespace trireme
