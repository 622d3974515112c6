#pragma once
// metrics.jsonl: one line a step. Not thread safe: rank 0 writes.

#include <cstdint>
#include <filesystem>
#include <optional>

namespace trireme {

template <class T>
struct PerAxis {
  T dp{}, tp{}, pp{}, cp{}, ep{};
};

struct StepMetrics {
  int64_t step = 0;
  double loss = 0, grad_norm = 0, lr = 0;
  int64_t tokens = 0;  // valid labels of the global batch
  double step_s = 0;   // of the slowest rank
  double tokens_per_s = 0, tflops = 0;
  double bubble = 0;            // idle / (ranks x step) of the pipeline; 0 without one
  PerAxis<int64_t> comm_bytes;  // sent by the busiest rank in this step
  PerAxis<double> comm_s;       // waited by the rank that waited longest
  int64_t peak_bytes = 0;       // largest rank: parameters, gradients, optimizer, activations, temporaries
  int64_t peak_rss_bytes = 0;   // resident, all processes of the run on this host
  std::optional<double> valid_loss;
};

class MetricsWriter {
 public:
  // Opens run_dir/metrics.jsonl for appending, keeping the lines of steps 1 .. `keep_until` only.
  MetricsWriter(const std::filesystem::path& run_dir, int64_t keep_until);
  ~MetricsWriter();
  // One line, flushed. Doubles read back bit-equal; what is not finite becomes null.
  void Append(const StepMetrics& metrics);

 private:
  int fd_ = -1;
  std::filesystem::path path_;
};

}  // namespace trireme
