#pragma once
// Which rank is where. A Mesh arranges the ranks 0 .. world-1 on named axes; groups are always asked for by axis name,
// so two axes can never share a group by mistake: every axis partitions the world, and ranks that differ on one axis
// only are in exactly one common group of more than one rank. Immutable: safe from any thread.
//
// Experts use the same ranks on axes of their own inside each pipeline stage: expert_tp fastest, then ep, then
// expert_dp (expert_dp = dp * cp * tp / (expert_tp * ep)).

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "mesh/options.h"

namespace trireme {

enum class Axis { kTp, kCp, kDp, kPp, kExpertTp, kEp, kExpertDp };
inline constexpr std::array kAllAxes = {Axis::kTp,       Axis::kCp, Axis::kDp,      Axis::kPp,
                                        Axis::kExpertTp, Axis::kEp, Axis::kExpertDp};
std::string_view AxisName(Axis axis);  // "tp", ..., "expert_dp"

// Position on each axis, indexed by Axis.
class Coordinate {
 public:
  int operator[](Axis axis) const { return at_[static_cast<size_t>(axis)]; }
  int& operator[](Axis axis) { return at_[static_cast<size_t>(axis)]; }
  bool operator==(const Coordinate&) const = default;
  std::string Text() const;  // "dp1 tp0 pp0": axes of the mesh (cp only where it is not 0)

 private:
  std::array<int, 7> at_{};
};

class Mesh {
 public:
  // Degrees must be at least 1 (UserError otherwise); `order` must name tp, cp, dp, pp once each.
  explicit Mesh(const ParallelOptions& options);

  int world() const { return world_; }
  int Size(Axis axis) const { return size_[static_cast<size_t>(axis)]; }
  Coordinate At(int rank) const;
  // The rank at tp, cp, dp, pp of the coordinate (its expert axes are ignored).
  int RankOf(const Coordinate& coordinate) const;

  // Ranks that differ from `rank` only on `axis`, ascending in that axis' coordinate; `rank` is among them.
  std::vector<int> Group(Axis axis, int rank) const;
  // All groups of the axis, ordered by first member. They partition 0 .. world-1.
  std::vector<std::vector<int>> Groups(Axis axis) const;
  // Ranks that differ from `rank` only on the given axes (dense parameters reduce over {kDp, kCp}); ascending.
  std::vector<int> Group(const std::vector<Axis>& axes, int rank) const;

  const std::vector<std::string>& order() const { return order_; }

 private:
  std::vector<std::string> order_;
  std::array<int, 7> size_{};
  int world_ = 1;
};

// The document of `trireme mesh --json` (docs: contracts "JSON").
std::string MeshJson(const Mesh& mesh);
// A table for people: each axis with its groups, then each rank with its coordinate.
std::string MeshText(const Mesh& mesh);

}  // namespace trireme
