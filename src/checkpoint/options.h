#pragma once
// When weights and training state are saved. Section `checkpoint` of the configuration.

#include <cstdint>
#include <string>

namespace trireme {

struct CheckpointOptions {
  int64_t every = 0;
  int64_t keep = 2;
  std::string dir;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("every", every, "steps between checkpoints; 0 writes one at the end and on a signal, -1 none at all");
    v.Field("keep", keep, "newest checkpoints that stay; 0 keeps all");
    v.Field("dir", dir, "folder of the checkpoints; empty means checkpoints/ in the run's folder");
  }
};

}  // namespace trireme
