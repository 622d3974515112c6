#pragma once
// What a person watches while a run trains: a bar on a terminal, a line now and then elsewhere.

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>

namespace trireme {

std::string DurationText(double seconds);  // "42s", "3m05s", "2h07m"

class ProgressBar {
 public:
  // `out` outlives the bar. Steps 1 .. done were trained before (a resumed run).
  ProgressBar(std::FILE* out, bool terminal, int64_t steps, int64_t done);
  void Update(int64_t step, double loss, double tokens_per_s, std::optional<double> valid_loss = {});
  void Finish();  // leaves the last state standing

 private:
  std::FILE* out_;
  const bool terminal_;
  const int64_t steps_, done_;
  const std::chrono::steady_clock::time_point begin_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace trireme
