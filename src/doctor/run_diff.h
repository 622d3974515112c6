#pragma once
// Where two runs part: the first step, and at that step the first of data, loss, gradients and parameters, that
// differs. Works on what the runs wrote: metrics.jsonl always; audit.jsonl (log.audit) names tensors; dumps/ (log.dump)
// give exact differences. Layouts may differ: tensors are whole and under canonical names.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace trireme {

struct RunDifference {
  int64_t step = 0;
  std::string kind;     // data, loss, gradient or parameter
  std::string tensor;   // canonical name; "" for data and loss, "global norm" where only that was written
  std::string a, b;     // what the runs have: numbers, or checksums
  double relative = 0;  // ||a - b|| / ||a||: exact from dumps; from audits an estimate of its size (docs/numerics.md)
};

struct RunDiff {
  int64_t steps = 0;     // steps that both runs wrote
  bool audited = false;  // both runs wrote audits: tensors were compared
  std::optional<RunDifference> first;
};

// Differences of at most `tolerance` (relative) do not count; 0: every bit does. UserError when a folder is not a run's
// or the runs have no step in common.
RunDiff DiffRuns(const std::filesystem::path& run_a, const std::filesystem::path& run_b, double tolerance);

std::string RunDiffText(const RunDiff& diff);
// {identical, steps, first_difference: {step, kind, tensor, rank, a, b, relative}} (rank is null: tensors are whole).
std::string RunDiffJson(const RunDiff& diff);

}  // namespace trireme
