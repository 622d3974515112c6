#pragma once
// The communicators of one rank, one an axis, made eagerly in one fixed order on all ranks.

#include <map>
#include <memory>

#include "comm/communicator.h"
#include "comm/recording.h"
#include "mesh/mesh.h"

namespace trireme {

class MeshComms {
 public:
  // Collective over `world`, whose size must be mesh.world(). `recorder` counts what each axis sends; it and `world`
  // must outlive this.
  MeshComms(Communicator& world, const Mesh& mesh, CommRecorder& recorder);

  Communicator& Get(Axis axis) const;  // group of this rank on tp, cp, dp or pp
  Communicator& world() const { return world_; }
  // Dense parameters' gradients reduce over dp x cp.
  Communicator& grad() const { return *grad_; }

 private:
  Communicator& world_;
  std::map<Axis, std::unique_ptr<Communicator>> axes_;
  std::unique_ptr<Communicator> grad_;
};

}  // namespace trireme
