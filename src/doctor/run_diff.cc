#include "doctor/run_diff.h"

#include <fmt/format.h>

#include <ATen/TensorOperators.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "checkpoint/safetensors.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;
using Rows = std::map<int64_t, Json>;

Rows ReadLines(const fs::path& path) {
  Rows rows;
  if (!fs::exists(path)) return rows;
  std::istringstream in(ReadFile(path));
  for (std::string line; std::getline(in, line);) {
    Json row = Json::parse(line, nullptr, false);
    if (row.is_discarded() || !row.contains("step")) continue;
    const auto step = row["step"].get<int64_t>();
    rows[step] = std::move(row);
  }
  return rows;
}

double Number(const Json& value) { return value.is_number() ? value.get<double>() : std::nan(""); }

// |a - b| / |a|; equal bits are 0, a NaN against a number is infinite.
double Relative(double a, double b) {
  if (a == b || (std::isnan(a) && std::isnan(b))) return 0;
  if (std::isnan(a) || std::isnan(b)) return INFINITY;
  return std::abs(a - b) / std::max(std::abs(a), 1e-300);
}

class Comparison {
 public:
  Comparison(const fs::path& a, const fs::path& b, double tolerance) : a_(a), b_(b), tolerance_(tolerance) {}

  std::optional<RunDifference> Step(int64_t step, const Json& metrics_a, const Json& metrics_b, const Json* audit_a,
                                    const Json* audit_b) const {
    const bool audited = audit_a != nullptr && audit_b != nullptr;
    if (audited && audit_a->value("data", "") != audit_b->value("data", "")) {
      return RunDifference{step, "data", "", audit_a->value("data", ""), audit_b->value("data", ""), 1};
    }
    if (auto found = Scalar(step, "loss", "", metrics_a["loss"], metrics_b["loss"])) return found;
    if (audited) {
      if (auto found = Tensors(step, "gradient", *audit_a, *audit_b)) return found;
    } else if (auto found = Scalar(step, "gradient", "global norm", metrics_a["grad_norm"], metrics_b["grad_norm"])) {
      return found;
    }
    return audited ? Tensors(step, "parameter", *audit_a, *audit_b) : std::nullopt;
  }

 private:
  std::optional<RunDifference> Scalar(int64_t step, const char* kind, const char* tensor, const Json& a,
                                      const Json& b) const {
    const double relative = Relative(Number(a), Number(b));
    if (relative <= tolerance_) return std::nullopt;
    return RunDifference{step, kind, tensor, a.dump(), b.dump(), relative};
  }

  std::optional<RunDifference> Tensors(int64_t step, const std::string& kind, const Json& a, const Json& b) const {
    const std::string section = kind + "s";
    if (!a.contains(section) || !b.contains(section)) return std::nullopt;
    for (const auto& [name, x] : a[section].items()) {
      if (!b[section].contains(name)) return RunDifference{step, kind, name, "present", "missing", INFINITY};
      const Json& y = b[section][name];
      if (x["xxh3"] == y["xxh3"]) continue;
      const double relative = Dumped(step, section, name).value_or(Estimate(x, y));
      if (relative <= tolerance_ && tolerance_ > 0) continue;
      return RunDifference{step, kind, name, x["xxh3"].get<std::string>(), y["xxh3"].get<std::string>(), relative};
    }
    return std::nullopt;
  }

  // The projection is a sum with pseudo-random signs: its difference is about as large as the norm of the difference.
  static double Estimate(const Json& x, const Json& y) {
    const double norm = std::max(Number(x["norm"]), 1e-300);
    const double difference = std::max(std::abs(Number(x["projection"]) - Number(y["projection"])),
                                       std::abs(Number(x["norm"]) - Number(y["norm"])));
    return std::isnan(difference) ? INFINITY : difference / norm;
  }

  // Exact, where both runs dumped the step.
  std::optional<double> Dumped(int64_t step, const std::string& section, const std::string& name) const {
    const fs::path file = fs::path("dumps") / fmt::format("step-{}", step) / (section + ".safetensors");
    if (!fs::exists(a_ / file) || !fs::exists(b_ / file)) return std::nullopt;
    const SafetensorsFile a(a_ / file), b(b_ / file);
    if (!a.Has(name) || !b.Has(name) || a.Find(name).shape != b.Find(name).shape) return std::nullopt;
    const at::Tensor x = a.View(name).to(at::kDouble), y = b.View(name).to(at::kDouble);
    return (x - y).norm().item<double>() / std::max(x.norm().item<double>(), 1e-300);
  }

  fs::path a_, b_;
  double tolerance_;
};

}  // namespace

RunDiff DiffRuns(const fs::path& run_a, const fs::path& run_b, double tolerance) {
  for (const fs::path& run : {run_a, run_b}) {
    if (!fs::exists(run / "metrics.jsonl"))
      FailUser("{}: holds no metrics.jsonl; expected the folder of a run", run.string());
  }
  const Rows a = ReadLines(run_a / "metrics.jsonl"), b = ReadLines(run_b / "metrics.jsonl");
  const Rows audits_a = ReadLines(run_a / "audit.jsonl"), audits_b = ReadLines(run_b / "audit.jsonl");
  const Comparison comparison(run_a, run_b, tolerance);
  RunDiff diff;
  for (const auto& [step, row] : a) {
    const auto other = b.find(step);
    if (other == b.end()) continue;
    ++diff.steps;
    const auto x = audits_a.find(step), y = audits_b.find(step);
    const bool audited = x != audits_a.end() && y != audits_b.end();
    diff.audited |= audited;
    diff.first =
        comparison.Step(step, row, other->second, audited ? &x->second : nullptr, audited ? &y->second : nullptr);
    if (diff.first) return diff;
  }
  if (diff.steps == 0) FailUser("{} and {}: no step in common", run_a.string(), run_b.string());
  return diff;
}

std::string RunDiffText(const RunDiff& diff) {
  if (!diff.first) {
    return fmt::format(
        "no difference in {} steps{}\n", diff.steps,
        diff.audited ? "" : " of loss and gradient norm (run with log.audit: true to compare every tensor)");
  }
  const RunDifference& d = *diff.first;
  return fmt::format("first difference: step {}, {}{}\n  a         {}\n  b         {}\n  relative  {:.3g}\n", d.step,
                     d.kind, d.tensor.empty() ? "" : " " + d.tensor, d.a, d.b, d.relative);
}

std::string RunDiffJson(const RunDiff& diff) {
  Json json = {{"identical", !diff.first.has_value()}, {"steps", diff.steps}, {"first_difference", nullptr}};
  if (diff.first) {
    const RunDifference& d = *diff.first;
    json["first_difference"] = {{"step", d.step},  {"kind", d.kind}, {"tensor", d.tensor},
                                {"rank", nullptr}, {"a", d.a},       {"b", d.b}};
    json["first_difference"]["relative"] = std::isfinite(d.relative) ? Json(d.relative) : Json(nullptr);
  }
  return json.dump(1);
}

}  // namespace trireme
