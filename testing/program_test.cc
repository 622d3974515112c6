#include "testing/program_test.h"

#include <nlohmann/json.hpp>
#include <sstream>

namespace trireme::testing {

std::vector<std::pair<int64_t, std::string>> ProgramTest::Losses(const std::string& run) const {
  std::vector<std::pair<int64_t, std::string>> losses;
  std::istringstream in(ReadFile(run + "/metrics.jsonl"));
  for (std::string line; std::getline(in, line);) {
    const auto row = nlohmann::json::parse(line);
    losses.emplace_back(row["step"].get<int64_t>(), row["loss"].dump() + " " + row["grad_norm"].dump());
  }
  return losses;
}

}  // namespace trireme::testing
