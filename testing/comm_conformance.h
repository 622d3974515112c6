#pragma once
// What every back end must do, as tests that do not know which one runs them.
//   INSTANTIATE_TEST_SUITE_P(Threads, CommConformance, ::testing::Values(BackEnd{"threads", RunThreads}), BackEndName);

#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <string>

#include "comm/communicator.h"

namespace trireme::testing {

struct BackEnd {
  std::string name;
  // Runs body on `ranks` ranks with the time-out; the first cause of failure is thrown.
  std::function<void(int ranks, std::chrono::duration<double> timeout, const std::function<void(Communicator&)>& body)>
      run;
};

// Names the tests; its use also makes the linker take the tests from the library.
std::string BackEndName(const ::testing::TestParamInfo<BackEnd>& info);

class CommConformance : public ::testing::TestWithParam<BackEnd> {
 protected:
  void Run(int ranks, const std::function<void(Communicator&)>& body, double timeout_s = 20) const {
    GetParam().run(ranks, std::chrono::duration<double>(timeout_s), body);
  }
};

}  // namespace trireme::testing
