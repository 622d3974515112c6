#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/file.h"
#include "report/memory.h"
#include "report/metrics.h"
#include "report/progress.h"
#include "report/rank_log.h"
#include "report/tensorboard.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

class ReportTest : public ::testing::Test {
 protected:
  ReportTest() : folder_(fs::temp_directory_path() / ("trireme-report-" + std::to_string(getpid()))) {
    fs::create_directories(folder_ / "ranks");
  }
  ~ReportTest() override { fs::remove_all(folder_); }
  const fs::path folder_;
};

TEST_F(ReportTest, MetricsReadBackBitEqual) {
  StepMetrics m;
  m.step = 1;
  m.loss = 0.1 + 0.2;
  m.grad_norm = std::nan("");
  m.comm_bytes.tp = 7;
  {
    MetricsWriter writer(folder_, 0);
    writer.Append(m);
    m.step = 2;
    m.valid_loss = 1.0 / 3;
    writer.Append(m);
  }
  std::istringstream lines(ReadFile(folder_ / "metrics.jsonl"));
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  const auto a = nlohmann::json::parse(first), b = nlohmann::json::parse(second);
  EXPECT_EQ(a["loss"].get<double>(), 0.1 + 0.2);
  EXPECT_TRUE(a["grad_norm"].is_null());
  EXPECT_EQ(a["comm_bytes"]["tp"], 7);
  EXPECT_FALSE(a.contains("valid_loss"));
  EXPECT_EQ(b["valid_loss"].get<double>(), 1.0 / 3);
}

TEST_F(ReportTest, AResumedRunCutsBackToItsStep) {
  StepMetrics m;
  {
    MetricsWriter writer(folder_, 0);
    for (m.step = 1; m.step <= 5; ++m.step) writer.Append(m);
  }
  std::FILE* torn = std::fopen((folder_ / "metrics.jsonl").c_str(), "a");
  std::fputs("{\"step\":6,\"lo", torn);
  std::fclose(torn);
  { MetricsWriter writer(folder_, 3); }
  const std::string text = ReadFile(folder_ / "metrics.jsonl");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_NE(text.find("\"step\":3"), std::string::npos);
  EXPECT_EQ(text.find("\"step\":4"), std::string::npos);
}

TEST(Crc32c, MatchesThePublishedValue) { EXPECT_EQ(Crc32c("123456789"), 0xE3069283u); }  // RFC 3720's check value

TEST_F(ReportTest, EventFilesAreFramedRecords) {
  { TensorBoardWriter(folder_).Scalar("loss", 300, 0.5); }
  std::string name;
  for (const auto& entry : fs::directory_iterator(folder_)) {
    if (entry.path().filename().string().starts_with("events.out.tfevents.")) name = entry.path();
  }
  const std::string text = ReadFile(name);
  // version: 1 + 8 (time) + 2 + 13 = 24 bytes; scalar: 9 + 1 + 2 (step 300) + 2 + 2 + 6 + 5 = 27; each framed by 16.
  EXPECT_EQ(text.size(), 24u + 27 + 2 * 16);
  EXPECT_NE(text.find("brain.Event:2"), std::string::npos);
}

TEST_F(ReportTest, RankLinesStartWithTheCoordinate) {
  RankLog(folder_, 5, "dp1 tp1 pp0").Write(12, "hello");
  EXPECT_EQ(ReadFile(folder_ / "ranks" / "rank-5.log"), "[rank 5 dp1 tp1 pp0 step 12] hello\n");
}

TEST(Progress, SaysDurationsShortly) {
  EXPECT_EQ(DurationText(41.6), "42s");
  EXPECT_EQ(DurationText(185), "3m05s");
  EXPECT_EQ(DurationText(7620), "2h07m");
}

TEST_F(ReportTest, ProgressElsewhereThanOnATerminalIsPlainLines) {
  std::FILE* out = std::fopen((folder_ / "out").c_str(), "w");
  ProgressBar bar(out, false, 2, 0);
  bar.Update(1, 2.5, 100);
  bar.Update(2, 2.25, 100, 2.125);
  bar.Finish();
  std::fclose(out);
  const std::string text = ReadFile(folder_ / "out");
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_NE(text.find("step 2/2  loss 2.2500       100 tokens/s  0s left  validation loss 2.1250\n"), std::string::npos)
      << text;
}

TEST(Memory, PeakIsMoreThanNothing) { EXPECT_GT(PeakResidentBytes(), Bytes(1 << 20)); }

}  // namespace
}  // namespace trireme
