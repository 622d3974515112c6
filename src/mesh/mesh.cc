#include "mesh/mesh.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace trireme {
namespace {

constexpr std::array kNames = {"tp", "cp", "dp", "pp", "expert_tp", "ep", "expert_dp"};
constexpr std::array kDenseAxes = {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp};

bool IsExpert(Axis axis) { return axis >= Axis::kExpertTp; }

Axis AxisFromName(const std::string& name) {
  for (const Axis axis : kDenseAxes) {
    if (AxisName(axis) == name) return axis;
  }
  FailUser("parallel.order: unknown axis '{}'; expected tp, cp, dp and pp, once each", name);
}

}  // namespace

std::string_view AxisName(Axis axis) { return kNames[static_cast<size_t>(axis)]; }

std::string Coordinate::Text() const {
  const std::string cp = (*this)[Axis::kCp] > 0 ? fmt::format(" cp{}", (*this)[Axis::kCp]) : "";
  return fmt::format("dp{} tp{} pp{}{}", (*this)[Axis::kDp], (*this)[Axis::kTp], (*this)[Axis::kPp], cp);
}

Mesh::Mesh(const ParallelOptions& options) {
  const auto set = [&](Axis axis, int size) {
    if (size < 1) FailUser("parallel.{}: {}; a degree is at least 1", AxisName(axis), size);
    size_[static_cast<size_t>(axis)] = size;
  };
  set(Axis::kTp, options.tp);
  set(Axis::kCp, options.cp);
  set(Axis::kDp, options.dp);
  set(Axis::kPp, options.pp);
  set(Axis::kExpertTp, options.expert_tp);
  set(Axis::kEp, options.ep);
  for (const std::string& name : options.order) {
    AxisFromName(name);
    if (std::ranges::count(options.order, name) > 1) FailUser("parallel.order: axis '{}' stands twice", name);
    order_.push_back(name);
  }
  for (const Axis axis : kDenseAxes) {
    world_ *= Size(axis);
    const std::string name(AxisName(axis));
    if (std::ranges::find(order_, name) != order_.end()) continue;
    if (Size(axis) > 1) FailUser("parallel.order: {} is missing, but parallel.{} is {}", name, name, Size(axis));
    order_.push_back(name);
  }
  const int per_stage = world_ / options.pp, experts = options.expert_tp * options.ep;
  if (per_stage % experts != 0) {
    FailUser("parallel.expert_tp {} x parallel.ep {} = {} must divide dp {} x cp {} x tp {} = {}", options.expert_tp,
             options.ep, experts, options.dp, options.cp, options.tp, per_stage);
  }
  set(Axis::kExpertDp, per_stage / experts);
}

Coordinate Mesh::At(int rank) const {
  TRIREME_CHECK(rank >= 0 && rank < world_, "rank {} of a world of {}", rank, world_);
  Coordinate at;
  int rest = rank, in_stage = 0, stride = 1;
  for (const std::string& name : order_) {
    const Axis axis = AxisFromName(name);
    at[axis] = rest % Size(axis);
    rest /= Size(axis);
    if (axis == Axis::kPp) continue;
    in_stage += at[axis] * stride;
    stride *= Size(axis);
  }
  at[Axis::kExpertTp] = in_stage % Size(Axis::kExpertTp);
  at[Axis::kEp] = in_stage / Size(Axis::kExpertTp) % Size(Axis::kEp);
  at[Axis::kExpertDp] = in_stage / (Size(Axis::kExpertTp) * Size(Axis::kEp));
  return at;
}

int Mesh::RankOf(const Coordinate& coordinate) const {
  int rank = 0, stride = 1;
  for (const std::string& name : order_) {
    const Axis axis = AxisFromName(name);
    rank += coordinate[axis] * stride;
    stride *= Size(axis);
  }
  return rank;
}

std::vector<int> Mesh::Group(const std::vector<Axis>& axes, int rank) const {
  const Coordinate mine = At(rank);
  const bool expert = std::ranges::any_of(axes, IsExpert);
  std::vector<int> group;
  for (int other = 0; other < world_; ++other) {
    const Coordinate at = At(other);
    const bool same = std::ranges::all_of(kAllAxes, [&](Axis axis) {
      // Expert axes and dense axes are two descriptions of the same ranks: a group is cut by one of them.
      const bool relevant = axis == Axis::kPp || IsExpert(axis) == expert;
      return !relevant || std::ranges::find(axes, axis) != axes.end() || at[axis] == mine[axis];
    });
    if (same) group.push_back(other);
  }
  return group;
}

std::vector<int> Mesh::Group(Axis axis, int rank) const { return Group(std::vector{axis}, rank); }

std::vector<std::vector<int>> Mesh::Groups(Axis axis) const {
  std::vector<std::vector<int>> groups;
  for (int rank = 0; rank < world_; ++rank) {
    std::vector<int> group = Group(axis, rank);
    if (group.front() == rank) groups.push_back(std::move(group));
  }
  return groups;
}

std::string MeshJson(const Mesh& mesh) {
  nlohmann::ordered_json document = {{"world", mesh.world()}, {"order", mesh.order()}};
  for (const Axis axis : kAllAxes) {
    document["axes"][std::string(AxisName(axis))] = {{"size", mesh.Size(axis)}, {"groups", mesh.Groups(axis)}};
  }
  for (int rank = 0; rank < mesh.world(); ++rank) {
    nlohmann::ordered_json row = {{"rank", rank}};
    for (const Axis axis : kAllAxes) row[std::string(AxisName(axis))] = mesh.At(rank)[axis];
    document["ranks"].push_back(std::move(row));
  }
  return document.dump(1);
}

std::string MeshText(const Mesh& mesh) {
  std::string text = fmt::format("{} ranks, fastest axis first: {}\n\n", mesh.world(), fmt::join(mesh.order(), ", "));
  for (const Axis axis : kAllAxes) {
    if (mesh.Size(axis) == 1) continue;
    text += fmt::format("{:<10} {:>3} ", AxisName(axis), mesh.Size(axis));
    for (const std::vector<int>& group : mesh.Groups(axis)) text += fmt::format(" {{{}}}", fmt::join(group, ","));
    text += '\n';
  }
  text += "\nrank";
  for (const Axis axis : kDenseAxes) text += fmt::format(" {:>4}", AxisName(axis));
  for (int rank = 0; rank < mesh.world(); ++rank) {
    text += fmt::format("\n{:>4}", rank);
    for (const Axis axis : kDenseAxes) text += fmt::format(" {:>4}", mesh.At(rank)[axis]);
  }
  return text;
}

}  // namespace trireme
