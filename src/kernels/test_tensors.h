#pragma once
// What the kernel tests share: inputs both types can hold exactly, and the comparison with an fp64 reference.

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "base/philox.h"

namespace trireme::kernels {

// Standard normal numbers times `scale` in fp64, rounded to fp32, so that fp32 kernels and the reference start equal.
inline at::Tensor Random(at::IntArrayRef sizes, std::string_view name, double scale = 1) {
  const at::Tensor tensor = at::empty(sizes, at::kDouble);
  const Philox philox(1, name);
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.mutable_data_ptr<double>()[i] =
        static_cast<double>(static_cast<float>(scale * philox.Normal(static_cast<uint64_t>(i))));
  }
  return tensor;
}

inline at::Tensor Integers(const std::vector<int64_t>& values) {
  const at::Tensor tensor = at::empty({static_cast<int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<int64_t>());
  return tensor;
}

// Filled with a number that no test expects: an element that a kernel forgets to write shows.
inline at::Tensor Unwritten(at::IntArrayRef sizes, at::ScalarType type) { return at::full(sizes, -7e7, type); }

// The project's meaning of "within": |expected - got|_2 <= tolerance * |expected|_2; fp64 1e-12, fp32 1e-5.
inline ::testing::AssertionResult Close(const at::Tensor& expected, const at::Tensor& got) {
  if (expected.sizes() != got.sizes()) return ::testing::AssertionFailure() << "shapes differ";
  const double tolerance = got.scalar_type() == at::kDouble ? 1e-12 : 1e-5;
  const double size = expected.norm().item<double>(), apart = expected.sub(got.to(at::kDouble)).norm().item<double>();
  if (apart <= tolerance * size) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "norm of the difference " << apart << ", of the expected tensor " << size;
}

// The results of `compute` with one and with two threads are the same bits.
inline void ExpectSameOnOneAndTwoThreads(const std::function<std::vector<at::Tensor>()>& compute) {
  const int before = at::get_num_threads();
  at::set_num_threads(1);
  const std::vector<at::Tensor> one = compute();
  at::set_num_threads(2);
  const std::vector<at::Tensor> two = compute();
  at::set_num_threads(before);
  ASSERT_EQ(one.size(), two.size());
  for (size_t i = 0; i < one.size(); ++i) EXPECT_TRUE(at::equal(one[i], two[i])) << "result " << i;
}

class KernelTest : public ::testing::TestWithParam<at::ScalarType> {
 protected:
  at::Tensor Typed(const at::Tensor& tensor) const { return tensor.to(GetParam(), false, /*copy=*/true); }
  at::Tensor Unwritten(at::IntArrayRef sizes) const { return kernels::Unwritten(sizes, GetParam()); }
};

inline std::string TypeName(const ::testing::TestParamInfo<at::ScalarType>& info) { return c10::toString(info.param); }

}  // namespace trireme::kernels

// In each test file: one instance of its suite for each type.
#define TRIREME_FOR_BOTH_TYPES(Suite) \
  INSTANTIATE_TEST_SUITE_P(Types, Suite, ::testing::Values(at::kFloat, at::kDouble), ::trireme::kernels::TypeName)
