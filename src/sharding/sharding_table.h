#pragma once
// The local view of every parameter on one rank. A pure function of the parameter table and the tensor-parallel
// coordinate, so any rank can compute any other rank's view.

#include <cstdint>
#include <string_view>
#include <vector>

#include "sharding/param_spec.h"

namespace trireme {

// A box of a named global tensor: elements offset[d] .. offset[d] + size[d] - 1 of each dimension. May be empty.
struct Rectangle {
  Shape offset;
  Shape size;
  bool operator==(const Rectangle&) const = default;
};
Rectangle Intersect(const Rectangle& a, const Rectangle& b);

struct LocalParam {
  ParamSpec spec;
  Shape local_shape;     // as allocated, padding included
  Rectangle rectangle;   // the part of the logical tensor it holds; rows past rectangle.size are padding, always zero
  int64_t replicas = 1;  // tensor-parallel ranks that hold this same piece
  bool counts = true;    // this rank counts the piece in global sums (norms, parameter counts): first of its replicas
  // The piece's gradient is a partial sum on each replica (key and value heads shared by several ranks), to be added
  // over the replicas; otherwise replicas compute the same full gradient.
  bool partial_gradient = false;
};

class ShardingTable {
 public:
  // Throws UserError naming the parameter when `parts` does not divide tp or the cut dimension.
  ShardingTable(std::vector<ParamSpec> specs, int tp, int tp_rank);

  const std::vector<LocalParam>& params() const { return params_; }
  const LocalParam& Find(std::string_view name) const;  // throws Error naming the parameter
  int tp() const { return tp_; }
  int tp_rank() const { return tp_rank_; }
  // Elements of the logical model (each parameter once).
  int64_t NumGlobalElements() const;

 private:
  std::vector<LocalParam> params_;
  int tp_, tp_rank_;
};

}  // namespace trireme
