#pragma once
// How long and on what a run trains. Sections `train`, `precision`, `memory` and `pipeline` of the configuration.

#include <cstdint>
#include <string>

namespace trireme {

struct TrainOptions {
  int64_t steps = 100;
  int64_t eval_every = 0;
  std::string device = "cpu";
  int threads_per_rank = 0;
  double timeout_s = 300;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("steps", steps, "optimizer steps of the whole run");
    v.Field("eval_every", eval_every, "steps between passes over the validation data; 0 means only at the end");
    v.Field("device", device, "cpu");
    v.Field("threads_per_rank", threads_per_rank, "compute threads of one rank; 0 means cores / ranks");
    v.Field("timeout_s", timeout_s, "seconds that a rank waits for another before the run is ended with a report");
  }
};

struct PrecisionOptions {
  std::string compute = "fp32";
  std::string deterministic = "run";

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("compute", compute, "fp32, or fp64 for proofs");
    v.Field("deterministic", deterministic, "run: the same layout gives the same bits twice");
  }
};

struct MemoryOptions {
  std::string recompute = "none";

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("recompute", recompute, "none: backward uses what forward kept");
  }
};

struct PipelineOptions {
  std::string schedule = "1f1b";

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("schedule", schedule, "order of forward and backward passes over pipeline stages; without effect at pp 1");
  }
};

}  // namespace trireme
