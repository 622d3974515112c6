#include "report/rank_log.h"

#include "base/error.h"

namespace trireme {

RankLog::RankLog(const std::filesystem::path& run_dir, int rank, std::string coordinate)
    : out_(run_dir / "ranks" / fmt::format("rank-{}.log", rank), std::ios::app),
      prefix_(fmt::format("rank {} {}", rank, coordinate)) {
  if (!out_) Fail("cannot write {}/ranks/rank-{}.log", run_dir.string(), rank);
}

void RankLog::Write(int64_t step, std::string_view text) {
  out_ << fmt::format("[{} step {}] {}\n", prefix_, step, text) << std::flush;
}

}  // namespace trireme
