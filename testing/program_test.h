#pragma once
// A folder of its own and a tiny training configuration for each test of the program.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/file.h"
#include "testing/process.h"

namespace trireme::testing {

class ProgramTest : public ::testing::Test {
 protected:
  ProgramTest() : folder_(std::filesystem::temp_directory_path() / ("trireme-program-" + std::to_string(::getpid()))) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::string text;
    for (int i = 0; i < 4000; ++i) text += static_cast<char>('a' + i * i % 23);
    std::ofstream(Path("text")) << text;
  }
  ~ProgramTest() override { std::filesystem::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // Four ranks, dp 2 x tp 2; `more` are further lines.
  std::string WriteConfig(const std::string& more = "") const {
    std::ofstream(Path("config.yaml")) << "model: { layers: 1, hidden: 16, heads: 2, seq: 8, ffn: 32 }\n"
                                       << "data: { text: [" << Path("text") << "] }\n"
                                       << "batch: { global: 4 }\nparallel: { dp: 2, tp: 2 }\n"
                                       << more;
    return Path("config.yaml");
  }
  // step -> "loss grad_norm" as printed, in the order of the lines.
  std::vector<std::pair<int64_t, std::string>> Losses(const std::string& run) const;

  const std::filesystem::path folder_;
};

}  // namespace trireme::testing
