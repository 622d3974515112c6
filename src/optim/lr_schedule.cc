#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/error.h"
#include "optim/optimizer.h"

namespace trireme {

double LearningRate(const OptimizerOptions& o, int64_t step, int64_t total) {
  if (step < o.warmup) return o.lr * static_cast<double>(step) / static_cast<double>(o.warmup);
  if (o.schedule == "constant" || total <= o.warmup) return o.lr;
  const auto position = static_cast<double>(std::min(step, total) - o.warmup),
             length = static_cast<double>(total - o.warmup);
  if (o.schedule == "cosine")
    return o.min_lr + (o.lr - o.min_lr) * 0.5 * (1 + std::cos(std::numbers::pi * position / length));
  if (o.schedule == "linear") return o.lr + (o.min_lr - o.lr) * position / length;
  TRIREME_CHECK(o.schedule == "wsd", "schedule {}", o.schedule);
  const double decay = std::min(static_cast<double>(total) / 5, length);
  return o.lr + (o.min_lr - o.lr) * std::max(0.0, position - (length - decay)) / decay;
}

double ClipScale(double norm, double clip) { return clip > 0 && norm > clip ? clip / norm : 1.0; }

}  // namespace trireme
