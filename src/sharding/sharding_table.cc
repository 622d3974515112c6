#include "sharding/sharding_table.h"

#include <algorithm>

#include "base/error.h"

namespace trireme {
namespace {

LocalParam Localize(const ParamSpec& spec, int tp, int tp_rank) {
  LocalParam local;
  local.spec = spec;
  local.local_shape = spec.shape;
  local.rectangle = {Shape(spec.shape.size(), 0), spec.shape};
  local.replicas = tp;
  local.counts = tp_rank == 0;
  if (spec.tp.dim < 0) return local;

  const auto dim = static_cast<size_t>(spec.tp.dim);
  const int64_t parts = spec.tp.parts, whole = spec.tp.padded > 0 ? spec.tp.padded : spec.shape[dim];
  if (parts < 1 || tp % parts != 0 || whole % parts != 0) {
    FailUser(
        "{}: {} pieces of dimension {} ({} rows) over tp {}: the pieces must divide both; choose another parallel.tp",
        spec.name, parts, dim, whole, tp);
  }
  local.replicas = tp / parts;
  const int64_t piece = tp_rank / local.replicas, rows = whole / parts;
  const int64_t begin = std::min(piece * rows, spec.shape[dim]), end = std::min((piece + 1) * rows, spec.shape[dim]);
  local.local_shape[dim] = rows;
  local.rectangle.offset[dim] = begin;
  local.rectangle.size[dim] = end - begin;
  local.counts = tp_rank % local.replicas == 0;
  local.partial_gradient = local.replicas > 1;
  return local;
}

}  // namespace

Rectangle Intersect(const Rectangle& a, const Rectangle& b) {
  Rectangle result = a;
  for (size_t d = 0; d < a.offset.size(); ++d) {
    const int64_t begin = std::max(a.offset[d], b.offset[d]);
    const int64_t end = std::min(a.offset[d] + a.size[d], b.offset[d] + b.size[d]);
    result.offset[d] = begin;
    result.size[d] = std::max<int64_t>(0, end - begin);
  }
  return result;
}

ShardingTable::ShardingTable(std::vector<ParamSpec> specs, int tp, int tp_rank) : tp_(tp), tp_rank_(tp_rank) {
  TRIREME_CHECK(tp >= 1 && tp_rank >= 0 && tp_rank < tp, "tp rank {} of {}", tp_rank, tp);
  for (const ParamSpec& spec : specs) params_.push_back(Localize(spec, tp, tp_rank));
}

const LocalParam& ShardingTable::Find(std::string_view name) const {
  for (const LocalParam& param : params_) {
    if (param.spec.name == name) return param;
  }
  Fail("{}: no such parameter among {}", name, params_.size());
}

int64_t ShardingTable::NumGlobalElements() const {
  int64_t n = 0;
  for (const LocalParam& param : params_) n += NumElements(param.spec.shape);
  return n;
}

}  // namespace trireme
