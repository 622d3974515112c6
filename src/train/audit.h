#pragma once
// What a run says about whole tensors, whatever its layout: checksums and statistics of every step (log.audit, to
// audit.jsonl) and the tensors themselves at chosen steps (log.dump, to dumps/step-N/). Rank 0 gathers one tensor at a
// time; tools for looking, not for speed.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include <nlohmann/json.hpp>

#include "report/options.h"
#include "train/session.h"

namespace trireme {

class Auditor {
 public:
  // Lines of audit.jsonl after step `keep_until` are cut off (a resumed run writes them again). All references outlive
  // it.
  Auditor(Session& session, const LogOptions& options, const std::filesystem::path& run_dir, int64_t keep_until);

  bool Wants(int64_t step) const { return options_.audit || Dumps(step); }
  // Collective over the world, each at its moment of the step: gradients reduced and not yet clipped; then the result.
  void Gradients(int64_t step);
  void Finish(int64_t step, const StepResult& result);

 private:
  bool Dumps(int64_t step) const;
  // Statistics of every tensor by name; writes the file when `dump`.
  nlohmann::ordered_json Examine(int64_t step, bool gradients, bool dump);
  // The whole logical tensor on world rank 0, undefined elsewhere.
  at::Tensor GatherWhole(const LocalParam& mine, bool gradient);

  Session& session_;
  const LogOptions& options_;
  std::filesystem::path run_dir_;
  nlohmann::ordered_json row_;
};

}  // namespace trireme
