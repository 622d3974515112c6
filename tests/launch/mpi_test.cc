#include <gtest/gtest.h>

#include <thread>

#include "testing/launchers.h"

namespace trireme::testing {
namespace {

TEST(Mpi, PassesTheConformanceSuite) {
#ifdef TRIREME_MPI_CONFORMANCE
  const Outcome outcome = MpiRun(7, TRIREME_MPI_CONFORMANCE, {}).Wait(std::chrono::seconds(300));
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_NE(outcome.output.find("PASSED"), std::string::npos) << outcome.output;
#else
  GTEST_SKIP() << "built without MPI";
#endif
}

}  // namespace
}  // namespace trireme::testing
