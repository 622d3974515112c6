// One configuration, started in every way: the same losses to the last bit, the same exit codes, and nobody left
// behind.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <thread>

#include "base/file.h"
#include "base/philox.h"
#include "testing/launchers.h"
#include "testing/program_test.h"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using ::testing::HasSubstr;

bool Installed(const std::string& command) {
  return Process("sh", {"-c", "command -v " + command}).Wait().exit_code == 0;
}

// Processes of the program whose command line mentions `folder`.
std::vector<pid_t> Alive(const std::string& folder) {
  std::vector<pid_t> alive;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    if (!std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; })) continue;
    std::error_code error;
    const fs::path program = fs::read_symlink(entry.path() / "exe", error);
    if (error || program.filename() != fs::path(ProgramPath()).filename()) continue;
    std::ifstream in(entry.path() / "cmdline");
    const std::string line((std::istreambuf_iterator<char>(in)), {});
    if (line.find(folder) != std::string::npos) alive.push_back(std::stoi(name));
  }
  return alive;
}

// A port that somebody listens on, until it goes out of scope.
struct Listener {
  Listener() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    socklen_t size = sizeof address;
    auto* plain = reinterpret_cast<sockaddr*>(&address);
    EXPECT_TRUE(::bind(fd, plain, size) == 0 && ::listen(fd, 1) == 0 && ::getsockname(fd, plain, &size) == 0);
    port = std::to_string(ntohs(address.sin_port));
  }
  ~Listener() { ::close(fd); }
  Listener(const Listener&) = delete;
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  std::string port;
};

std::string FreePort() { return Listener().port; }

void ExpectNobodyLeft(const std::string& folder) {
  for (int i = 0; i < 100 && !Alive(folder).empty(); ++i) std::this_thread::sleep_for(milliseconds(50));
  const auto left = Alive(folder);
  EXPECT_TRUE(left.empty()) << left.size() << " processes are left";
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
}

class LaunchTest : public ProgramTest {
 protected:
  std::vector<std::string> Train(const std::string& run, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"train", Path("config.yaml"), "--run-dir", Path(run)};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  Process Start(const std::string& how, const std::string& run) const {
    if (how == "mpirun") return MpiRun(4, ProgramPath(), Train(run));
    if (how == "threads") return Process(Train(run));
    return Process(Train(run, {"--backend", how}));
  }
};

TEST_F(LaunchTest, EveryWayGivesTheSameLosses) {
  WriteConfig("train: { steps: 12 }\n");
  ASSERT_EQ(Start("threads", "threads").Wait().exit_code, 0);
  std::vector<std::string> ways{"gloo"};
  if (Installed("mpirun")) ways.insert(ways.end(), {"mpi", "mpirun"});
  for (const std::string& how : ways) {
    const Outcome outcome = Start(how, how).Wait();
    EXPECT_EQ(outcome.exit_code, 0) << how << ": " << outcome.output;
    EXPECT_EQ(Losses(Path(how)), Losses(Path("threads"))) << how;
    EXPECT_EQ(std::distance(fs::directory_iterator(Path(how) + "/ranks"), {}), 4) << how;
  }
  ExpectNobodyLeft(folder_.string());
}

// What torchrun sets, set by hand: rank 0 keeps the store, or an agent does.
TEST_F(LaunchTest, TorchrunsVariables) {
  WriteConfig("train: { steps: 12 }\n");
  ASSERT_EQ(Start("threads", "threads").Wait().exit_code, 0);
  const std::string port = "MASTER_PORT=" + FreePort();
  std::vector<std::unique_ptr<Process>> ranks;
  for (int rank = 0; rank < 4; ++rank) {
    ranks.push_back(std::make_unique<Process>(
        ProgramPath(), Train("torchrun"),
        std::vector<std::string>{"RANK=" + std::to_string(rank), "WORLD_SIZE=4", "LOCAL_RANK=" + std::to_string(rank),
                                 "LOCAL_WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", port}));
  }
  for (auto& rank : ranks) {
    const Outcome outcome = rank->Wait();
    EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  }
  EXPECT_EQ(Losses(Path("torchrun")), Losses(Path("threads")));
}

TEST_F(LaunchTest, TwoJobsAtOnceDoNotMeet) {
  WriteConfig("train: { steps: 12 }\n");
  Process a = Start("gloo", "a"), b = Start("gloo", "b");
  EXPECT_EQ(a.Wait().exit_code, 0);
  EXPECT_EQ(b.Wait().exit_code, 0);
  EXPECT_EQ(Losses(Path("a")), Losses(Path("b")));
}

TEST_F(LaunchTest, AWorldThatDoesNotFitIsRefusedOnce) {
  WriteConfig();
  if (!Installed("mpirun")) GTEST_SKIP() << "no mpirun";
  const Outcome outcome = MpiRun(3, ProgramPath(), Train("run")).Wait();
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("3"));
  EXPECT_THAT(outcome.output, HasSubstr("dp 2 x tp 2"));
  EXPECT_EQ(outcome.output.find("error: --ranks"), outcome.output.rfind("error: --ranks")) << outcome.output;
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(LaunchTest, ContradictingVariablesAreNamed) {
  WriteConfig();
  const std::vector<std::string> mpi{"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=4", "RANK=2", "WORLD_SIZE=4"};
  const Outcome outcome = Process(ProgramPath(), Train("run"), mpi).Wait();
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.output, HasSubstr("RANK: 2 contradicts mpirun, which says 0"));
  const Outcome beyond = Process(ProgramPath(), Train("run"), {"RANK=4", "WORLD_SIZE=4"}).Wait();
  EXPECT_THAT(beyond.output, HasSubstr("RANK: 4 is not below WORLD_SIZE = 4"));
}

TEST_F(LaunchTest, ABusyPortIsNamed) {
  WriteConfig();
  const Listener busy;
  const Outcome outcome = Process(ProgramPath(), Train("run"),
                                  {"RANK=0", "WORLD_SIZE=4", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + busy.port})
                              .Wait();
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.output, HasSubstr("127.0.0.1:" + busy.port));
  EXPECT_THAT(outcome.output, HasSubstr("in use"));
}

TEST_F(LaunchTest, ASignalWritesACheckpoint) {
  WriteConfig("train: { steps: 100000 }\n");
  Process run = Start("gloo", "run");
  while (!fs::exists(Path("run") + "/metrics.jsonl") || Losses(Path("run")).size() < 5)
    std::this_thread::sleep_for(milliseconds(20));
  run.Kill(SIGTERM);
  const Outcome outcome = run.Wait();
  EXPECT_EQ(outcome.exit_code, 130) << outcome.output;
  EXPECT_TRUE(fs::exists(Path("run") + "/checkpoints/latest/manifest.json"));
  ExpectNobodyLeft(folder_.string());
}

// A rank killed at any moment: the others say whom they lost, where and doing what; the run ends with 1, at once.
TEST_F(LaunchTest, AKilledRankIsReportedByTheOthers) {
  WriteConfig("train: { steps: 100000, timeout_s: 20 }\n");
  const Philox dice(7, "kills");
  const char* soak = std::getenv("TRIREME_SOAK");
  const int kills = soak != nullptr ? 50 : 4;
  std::vector<std::string> ways{"gloo"};
  if (Installed("mpirun")) ways.push_back("mpirun");
  for (const std::string& how : ways) {
    for (int kill = 0; kill < kills; ++kill) {
      const std::string run = how + std::to_string(kill);
      Process job = Start(how, run);
      while (!fs::exists(Path(run) + "/metrics.jsonl")) std::this_thread::sleep_for(milliseconds(5));
      std::this_thread::sleep_for(milliseconds(dice.At(static_cast<uint64_t>(kill))[0] % 400));
      std::vector<pid_t> ranks;
      for (const pid_t pid : Alive(Path(run))) {
        std::ifstream in("/proc/" + std::to_string(pid) + "/environ");
        const std::string variables((std::istreambuf_iterator<char>(in)), {});
        const bool victim =
            variables.find(how == "gloo" ? std::string("\0RANK=2", 7) : "OMPI_COMM_WORLD_RANK=2") != std::string::npos;
        if (victim) ranks.push_back(pid);
      }
      ASSERT_EQ(ranks.size(), 1u) << how;
      const auto begin = std::chrono::steady_clock::now();
      ::kill(ranks[0], SIGKILL);
      const Outcome outcome = job.Wait();
      const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
      EXPECT_NE(outcome.exit_code, 0) << outcome.output;
      if (how == "gloo") {
        EXPECT_EQ(outcome.exit_code, 1);
        EXPECT_LT(took.count(), 8) << "the time-out is 20 s";
        EXPECT_THAT(outcome.output, HasSubstr("rank 2 was ended by signal 9"));
        EXPECT_THAT(outcome.output, HasSubstr("lost rank 2"));
      }
      for (const int survivor : {0, 1, 3}) {
        EXPECT_TRUE(std::regex_search(
            outcome.output,
            std::regex("\\[rank " + std::to_string(survivor) + " [^\\]]*\\] \\S+ .*in group '\\w+', sequence number")))
            << how << " " << kill << ": rank " << survivor << " says nothing:\n"
            << outcome.output;
      }
      ExpectNobodyLeft(folder_.string());
    }
  }
}

}  // namespace
}  // namespace trireme::testing
