// The installed library builds the example in a clean folder, and it runs as threads and under mpirun.

#include <gtest/gtest.h>

#include <filesystem>

#include "testing/launchers.h"
#include "testing/program_test.h"

namespace trireme::testing {
namespace {

using InstallTest = ProgramTest;

TEST_F(InstallTest, TheExampleBuildsAndLearns) {
  const auto run = [](const std::string& command, const std::vector<std::string>& words) {
    const Outcome outcome = Process(command, words).Wait(std::chrono::seconds(600));
    EXPECT_EQ(outcome.exit_code, 0) << command << ":\n" << outcome.output;
    return outcome.output;
  };
  run("cmake", {"--install", TRIREME_BUILD, "--prefix", Path("prefix")});
  std::filesystem::copy(std::filesystem::path(TRIREME_SOURCE) / "examples/ddp", Path("ddp"));
  run("cmake", {"-G", "Ninja", "-S", Path("ddp"), "-B", Path("ddp/build"), "-DCMAKE_PREFIX_PATH=" + Path("prefix"),
                "-DCMAKE_BUILD_TYPE=Release"});
  run("cmake", {"--build", Path("ddp/build")});
  const auto last_loss = [](const std::string& output) {
    const size_t at = output.rfind("loss ");
    return at == std::string::npos ? 99.0 : std::stod(output.substr(at + 5));
  };
  const std::string threads = run(Path("ddp/build/ddp"), {});
  EXPECT_LT(last_loss(threads), 0.35) << threads;  // ln 2 = 0.69 is a guess
#ifdef TRIREME_MPI_CONFORMANCE
  const Outcome processes = MpiRun(4, Path("ddp/build/ddp"), {}).Wait();
  EXPECT_EQ(processes.exit_code, 0) << processes.output;
  EXPECT_LT(last_loss(processes.output), 0.35) << processes.output;
#endif
}

}  // namespace
}  // namespace trireme::testing
