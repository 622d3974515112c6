#include "data_parallel/param_store.h"

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/philox.h"

namespace trireme {
namespace {

// Calls visit(global linear index, local linear index) for each element of the rectangle, row by row.
template <class Visit>
void ForEachElement(const LocalParam& param, Visit visit) {
  const Shape& global = param.spec.shape;
  const Rectangle& box = param.rectangle;
  const int64_t columns = global.size() > 1 ? box.size[1] : 1;
  const int64_t global_columns = global.size() > 1 ? global[1] : 1,
                local_columns = global.size() > 1 ? param.local_shape[1] : 1;
  const int64_t first_column = global.size() > 1 ? box.offset[1] : 0;
  at::parallel_for(0, box.size[0], 16, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      for (int64_t column = 0; column < columns; ++column) {
        visit((box.offset[0] + row) * global_columns + first_column + column, row * local_columns + column);
      }
    }
  });
}

template <class T>
void Fill(const LocalParam& param, uint64_t seed, T* out) {
  const Init& init = param.spec.init;
  const Philox random(seed, param.spec.name);
  ForEachElement(param, [&](int64_t global, int64_t local) {
    switch (init.kind) {
      case Init::Kind::kNormal:
        out[local] = static_cast<T>(init.std * random.Normal(static_cast<uint64_t>(global)));
        break;
      case Init::Kind::kOnes:
        out[local] = T{1};
        break;
      case Init::Kind::kZeros:
        out[local] = T{0};
        break;
    }
  });
}

}  // namespace

ParamStore::ParamStore(const ShardingTable& table, at::ScalarType type, int64_t align) : table_(table) {
  for (const LocalParam& param : table_.params()) {
    TRIREME_CHECK(param.spec.shape.size() == 1 || param.spec.shape.size() == 2, "{}: {}", param.spec.name,
                  ShapeText(param.spec.shape));
    if (std::ranges::find(units_, param.spec.unit) == units_.end()) units_.push_back(param.spec.unit);
  }
  std::ranges::sort(units_, std::greater<>());  // backward completes the head first
  int64_t next = 0;
  for (const int unit : units_) {
    const int64_t begin = next;
    for (const LocalParam& param : table_.params()) {
      if (param.spec.unit != unit) continue;
      ranges_[param.spec.name] = {next, next + NumElements(param.local_shape)};
      next = ranges_[param.spec.name].end;
    }
    next = (next + align - 1) / align * align;
    unit_ranges_[unit] = {begin, next};
  }
  values_ = at::zeros({next}, type);
  grads_ = at::zeros({next}, type);
}

void ParamStore::Initialize(uint64_t seed) {
  for (const LocalParam& param : table_.params()) {
    const at::Tensor value = Value(param.spec.name);
    if (value.scalar_type() == at::kDouble) {
      Fill(param, seed, value.mutable_data_ptr<double>());
    } else {
      TRIREME_CHECK(value.scalar_type() == at::kFloat, "parameters are fp32 or fp64");
      Fill(param, seed, value.mutable_data_ptr<float>());
    }
  }
}

Param ParamStore::Get(const std::vector<std::string>& names) {
  TRIREME_CHECK(!names.empty(), "no name given");
  ElementRange range = RangeOf(names[0]);
  Shape shape = table_.Find(names[0]).local_shape;
  for (size_t i = 1; i < names.size(); ++i) {
    const ElementRange next = RangeOf(names[i]);
    const Shape& other = table_.Find(names[i]).local_shape;
    if (next.begin != range.end || !std::equal(shape.begin() + 1, shape.end(), other.begin() + 1, other.end())) {
      Fail("{} and {}: cannot be fused: expected neighbours of equal width, got {} at {} and {} at {}", names[i - 1],
           names[i], ShapeText(shape), range.begin, ShapeText(other), next.begin);
    }
    range.end = next.end;
    shape[0] += other[0];
  }
  const auto known = std::ranges::find_if(taken_, [&](const Taken& t) { return t.names == names; });
  if (known == taken_.end()) {
    for (const std::string& name : names) {
      for (const Taken& other : taken_) {
        if (std::ranges::find(other.names, name) != other.names.end()) Fail("{}: taken in two different fusions", name);
      }
    }
    taken_.push_back({names, range, false});
  }
  Taken& taken = known == taken_.end() ? taken_.back() : *known;
  return {values_.narrow(0, range.begin, range.size()).view(shape),
          grads_.narrow(0, range.begin, range.size()).view(shape), &taken.written};
}

ElementRange ParamStore::RangeOf(const std::string& name) const {
  const auto at = ranges_.find(name);
  if (at == ranges_.end()) Fail("{}: no such parameter among {}", name, ranges_.size());
  return at->second;
}

ElementRange ParamStore::UnitRange(int unit) const { return unit_ranges_.at(unit); }

at::Tensor ParamStore::Value(const std::string& name) const {
  const ElementRange range = RangeOf(name);
  return values_.narrow(0, range.begin, range.size()).view(table_.Find(name).local_shape);
}

at::Tensor ParamStore::Grad(const std::string& name) const {
  const ElementRange range = RangeOf(name);
  return grads_.narrow(0, range.begin, range.size()).view(table_.Find(name).local_shape);
}

void ParamStore::BeginStep() {
  for (Taken& taken : taken_) taken.written = false;
}

void ParamStore::ClearUnwritten(int unit) {
  const ElementRange range = UnitRange(unit);
  for (const LocalParam& param : table_.params()) {
    const ElementRange mine = RangeOf(param.spec.name);
    if (mine.begin < range.begin || mine.end > range.end) continue;
    const bool written = std::ranges::any_of(
        taken_, [&](const Taken& t) { return t.written && t.range.begin <= mine.begin && mine.end <= t.range.end; });
    if (!written) grads_.narrow(0, mine.begin, mine.size()).zero_();
  }
}

std::vector<ParamStore::ParamRun> ParamStore::Runs() const {
  std::vector<ParamRun> runs;
  for (const int unit : units_) {
    for (const LocalParam& param : table_.params()) {
      if (param.spec.unit != unit) continue;
      const ElementRange range = RangeOf(param.spec.name);
      if (!runs.empty() && runs.back().end == range.begin && runs.back().kind == param.spec.kind &&
          runs.back().counts == param.counts) {
        runs.back().end = range.end;
      } else {
        runs.push_back({range.begin, range.end, param.spec.kind, param.counts});
      }
    }
  }
  return runs;
}

}  // namespace trireme
