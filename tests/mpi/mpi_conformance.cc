// The conformance suite over the mpi back end. Run under mpirun with as many processes as the largest world of the
// suite (7): every process goes through the same tests, those beyond a test's world look on. The exit status is the
// worst.

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "comm/mpi_world.h"
#include "testing/comm_conformance.h"

namespace trireme::testing {
namespace {

MpiWorld* mpi = nullptr;  // googletest calls back without arguments

// What any rank threw is thrown on all processes, as it is where ranks are threads.
void RunMpi(int ranks, std::chrono::duration<double> timeout, const std::function<void(Communicator&)>& body) {
  const auto world = mpi->Join(ranks, timeout);
  std::string error;
  bool comm_error = false;
  if (world) {
    try {
      body(*world);
    } catch (const CommError& e) {
      error = e.what();
      comm_error = true;
      world->Abort(e.what());
    } catch (const std::exception& e) {
      error = e.what();
      world->Abort(e.what());
    }
  }
  // The cause before its echoes: what is no communication error first.
  const auto referee = mpi->Join(mpi->size(), std::chrono::duration<double>(60));
  const int n = referee->size();
  constexpr int64_t kBytes = 1024;
  at::Tensor mine = at::zeros({kBytes}, at::kByte), all = at::zeros({n, kBytes}, at::kByte);
  const std::string told = (error.empty() ? "-" : comm_error ? "c" : "x") + error.substr(0, kBytes - 2);
  std::memcpy(mine.data_ptr(), told.data(), told.size());
  referee->AllGather(all, mine)->Wait();
  std::string echo;
  for (int r = 0; r < n; ++r) {
    const std::string text(static_cast<const char*>(all[r].data_ptr()));
    if (text[0] == 'x') throw std::runtime_error(text.substr(1));
    if (text[0] == 'c' && (echo.empty() || text.find("missing") != std::string::npos)) echo = text.substr(1);
  }
  if (!echo.empty()) throw CommError(echo);
}

INSTANTIATE_TEST_SUITE_P(Mpi, CommConformance, ::testing::Values(BackEnd{"mpi", RunMpi}), BackEndName);

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  trireme::MpiWorld world;
  trireme::testing::mpi = &world;
  if (world.rank() != 0)
    delete ::testing::UnitTest::GetInstance()->listeners().Release(
        ::testing::UnitTest::GetInstance()->listeners().default_result_printer());
  const int failed = RUN_ALL_TESTS();
  const auto referee = world.Join(world.size(), std::chrono::duration<double>(60));
  at::Tensor worst = at::full({1}, failed, at::kLong);
  referee->AllReduce(worst, trireme::ReduceOp::kMax)->Wait();
  return static_cast<int>(*worst.const_data_ptr<int64_t>());
}
