#include "report/metrics.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "base/file.h"

namespace trireme {
namespace {

template <class T>
nlohmann::ordered_json Json(const PerAxis<T>& v) {
  return {{"dp", v.dp}, {"tp", v.tp}, {"pp", v.pp}, {"cp", v.cp}, {"ep", v.ep}};
}

// Lines of steps up to `last`; a torn last line (a kill while writing) goes too.
std::string LinesUntil(const std::string& text, int64_t last) {
  std::istringstream in(text);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const nlohmann::json row = nlohmann::json::parse(line, nullptr, false);
    if (row.is_discarded() || !row.contains("step") || row["step"].get<int64_t>() > last) continue;
    kept += line + '\n';
  }
  return kept;
}

}  // namespace

MetricsWriter::MetricsWriter(const std::filesystem::path& run_dir, int64_t keep_until)
    : path_(run_dir / "metrics.jsonl") {
  if (std::filesystem::exists(path_)) WriteFileAtomically(path_, LinesUntil(ReadFile(path_), keep_until));
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) Fail("cannot write {}: {}", path_.string(), std::strerror(errno));
}

MetricsWriter::~MetricsWriter() { ::close(fd_); }

void MetricsWriter::Append(const StepMetrics& m) {
  nlohmann::ordered_json row = {{"step", m.step},
                                {"loss", m.loss},
                                {"grad_norm", m.grad_norm},
                                {"lr", m.lr},
                                {"tokens", m.tokens},
                                {"step_s", m.step_s},
                                {"tokens_per_s", m.tokens_per_s},
                                {"tflops", m.tflops},
                                {"bubble", m.bubble},
                                {"comm_bytes", Json(m.comm_bytes)},
                                {"comm_s", Json(m.comm_s)},
                                {"peak_bytes", m.peak_bytes},
                                {"peak_rss_bytes", m.peak_rss_bytes}};
  if (m.valid_loss) row["valid_loss"] = *m.valid_loss;
  const std::string line = row.dump() + '\n';
  // One write a line: a kill leaves whole lines.
  if (::write(fd_, line.data(), line.size()) != static_cast<ssize_t>(line.size())) {
    Fail("cannot write {}: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace trireme
