#pragma once
// What a run writes about itself. Section `log` of the configuration.

#include <cstdint>
#include <string>
#include <vector>

namespace trireme {

struct DumpOptions {
  std::vector<int64_t> steps;
  bool gradients = true;
  bool parameters = true;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("steps", steps, "steps at which whole tensors are written to dumps/step-N/");
    v.Field("gradients", gradients, "dump the gradients of that step, reduced over all ranks, before clipping");
    v.Field("parameters", parameters, "dump the parameters after that step's update");
  }
};

struct LogOptions {
  int64_t every = 1;
  bool tensorboard = true;
  bool audit = false;
  int64_t sample = 0;
  std::string sample_prompt = "\n";
  DumpOptions dump;

  template <class Visitor>
  void VisitFields(Visitor& v) {
    v.Field("every", every, "steps between lines of metrics.jsonl (each line costs one small reduction)");
    v.Field("tensorboard", tensorboard, "write events.out.tfevents.* beside metrics.jsonl");
    v.Field("audit", audit, "write checksums and norms of every tensor and batch to audit.jsonl at each step");
    v.Field("sample", sample,
            "tokens that the trained model writes at the end of the run, for people to look at; 0: none");
    v.Field("sample_prompt", sample_prompt, "what that text goes on from");
    v.Section("dump", dump, "whole tensors of chosen steps");
  }
};

}  // namespace trireme
