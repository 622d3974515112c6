#pragma once
// ranks/rank-N.log: what one rank has to say, each line with its coordinate and step in front.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

namespace trireme {

class RankLog {
 public:
  // Appends to run_dir/ranks/rank-N.log. `coordinate` is Coordinate::Text().
  RankLog(const std::filesystem::path& run_dir, int rank, std::string coordinate);
  // "[rank 5 dp1 tp1 pp0 step 12] text", flushed.
  void Write(int64_t step, std::string_view text);

 private:
  std::ofstream out_;
  std::string prefix_;
};

}  // namespace trireme
