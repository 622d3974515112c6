#include "comm/mesh_comms.h"

#include <set>

namespace trireme {

MeshComms::MeshComms(Communicator& world, const Mesh& mesh, CommRecorder& recorder) : world_(world) {
  TRIREME_CHECK(world.size() == mesh.world(), "the world has {} ranks, the mesh {}", world.size(), mesh.world());
  for (const Axis axis : {Axis::kTp, Axis::kCp, Axis::kDp, Axis::kPp}) {
    axes_[axis] = Record(world.Split(mesh.Groups(axis), std::string(AxisName(axis))), recorder);
  }
  std::set<std::vector<int>> groups;  // ordered by first member
  for (int rank = 0; rank < mesh.world(); ++rank) groups.insert(mesh.Group({Axis::kDp, Axis::kCp}, rank));
  grad_ = Record(world.Split({groups.begin(), groups.end()}, "dp"), recorder);
}

Communicator& MeshComms::Get(Axis axis) const {
  const auto found = axes_.find(axis);
  TRIREME_CHECK(found != axes_.end(), "no communicator for axis {}", AxisName(axis));
  return *found->second;
}

}  // namespace trireme
