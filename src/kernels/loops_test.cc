#include "kernels/loops.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/philox.h"

namespace trireme::kernels {
namespace {

std::vector<InstructionSet> SetsHere() {
  std::vector<InstructionSet> sets{InstructionSet::kBaseline};
  if (BestInstructionSet() >= InstructionSet::kAvx2) sets.push_back(InstructionSet::kAvx2);
  if (BestInstructionSet() >= InstructionSet::kAvx512) sets.push_back(InstructionSet::kAvx512);
  return sets;
}

template <class T>
class LoopsTest : public ::testing::Test {
 protected:
  static std::vector<T> Random(int64_t n, const char* name, double scale = 1) {
    const Philox philox(3, name);
    std::vector<T> x(static_cast<size_t>(n));
    for (size_t i = 0; i < x.size(); ++i) x[i] = static_cast<T>(scale * philox.Normal(i));
    return x;
  }
};
using Types = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LoopsTest, Types);

// Against libm in long double, over all of exp's range: 2 units in the last place, infinity and 0 at the ends.
TYPED_TEST(LoopsTest, ExpIsWithinTwoUnitsInTheLastPlace) {
  using T = TypeParam;
  const T last = std::log(std::numeric_limits<T>::max()), first = std::log(std::numeric_limits<T>::min());
  std::vector<T> x;
  for (int i = 0; i <= 20000; ++i) x.push_back(first + T{1} + (last - first - T{2}) * static_cast<T>(i) / T{20000});
  for (const InstructionSet set : SetsHere()) {
    std::vector<T> y = x;
    LoopsFor<T>(set).exp_sum(y.data(), T{0}, static_cast<int64_t>(y.size()));
    long double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double exact = std::exp(static_cast<long double>(x[i]));
      worst = std::max(worst, std::abs(static_cast<long double>(y[i]) - exact) / exact);
    }
    EXPECT_LE(worst, 2 * std::numeric_limits<T>::epsilon()) << "instruction set " << static_cast<int>(set);
  }
}

TYPED_TEST(LoopsTest, ExpAtTheEnds) {
  using T = TypeParam;
  const T inf = std::numeric_limits<T>::infinity();
  for (const InstructionSet set : SetsHere()) {
    std::vector<T> x(19, T{0});  // longer than a vector, so that body and remainder both see each value
    for (const auto& [at, expected] :
         std::vector<std::pair<T, T>>{{inf, inf}, {T{1e4}, inf}, {-inf, 0}, {T{-1e4}, 0}, {0, 1}}) {
      std::fill(x.begin(), x.end(), at);
      LoopsFor<T>(set).exp_sum(x.data(), T{0}, 19);
      for (const T y : x) EXPECT_EQ(y, expected) << "exp(" << at << ")";
    }
    std::fill(x.begin(), x.end(), std::numeric_limits<T>::quiet_NaN());
    EXPECT_TRUE(std::isnan(LoopsFor<T>(set).exp_sum(x.data(), T{0}, 19)));
  }
}

// Element for element, every instruction set computes what the plain one does, up to a fused multiply-add's rounding.
TYPED_TEST(LoopsTest, EverySetAgreesWithTheBaseline) {
  using T = TypeParam;
  const auto close = [](const std::vector<T>& a, const std::vector<T>& b) {
    for (size_t i = 0; i < a.size(); ++i) {
      if (std::abs(a[i] - b[i]) > 32 * std::numeric_limits<T>::epsilon() * (std::abs(a[i]) + T{1})) return false;
    }
    return true;
  };
  for (const int64_t n : {0, 1, 3, 15, 16, 17, 31, 64, 100}) {
    const std::vector<T> a = this->Random(n, "a"), b = this->Random(n, "b"), c = this->Random(n, "c");
    const auto run = [&](InstructionSet set) {
      const Loops<T>& loops = LoopsFor<T>(set);
      std::vector<std::vector<T>> out(12, c);
      loops.swiglu(a.data(), b.data(), out[0].data(), n);
      loops.swiglu_backward(c.data(), a.data(), b.data(), out[1].data(), out[2].data(), n);
      out[3].push_back(n == 0 ? T{0} : loops.rms_norm(a.data(), b.data(), T{1e-5}, out[3].data(), n));
      loops.rms_norm_backward(a.data(), b.data(), c.data(), T{0.5}, out[4].data(), n);
      loops.add_product(a.data(), b.data(), T{0.5}, out[5].data(), n);
      loops.rotate(out[6].data(), out[7].data(), a.data(), b.data(), T{-1}, n);
      out[8].push_back(n == 0 ? T{0} : loops.max(a.data(), n));
      out[8].push_back(loops.exp_sum(out[8].data(), T{1}, n));
      loops.multiply(out[9].data(), T{3}, n);
      std::vector<T> second(b.size());
      std::transform(b.begin(), b.end(), second.begin(), [](T x) { return x * x; });
      loops.adamw({T{0.99}, T{0.01}, T{1.5}, T{0.9}, T{0.95}, T{0.1}, T{0.05}, T{2}, T{1e-8}}, out[10].data(), a.data(),
                  out[11].data(), second.data(), n);
      out.push_back({loops.dot(a.data(), b.data(), n)});
      out.push_back(b);
      loops.softmax_backward(a.data(), T{0.3}, T{0.5}, out.back().data(), n);
      out.push_back(second);
      out.push_back({static_cast<T>(loops.sum_of_squares(a.data(), n))});
      return out;
    };
    const auto expected = run(InstructionSet::kBaseline);
    for (const InstructionSet set : SetsHere()) {
      const auto got = run(set);
      for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_TRUE(close(expected[i], got[i])) << "n " << n << ", result " << i << ", set " << static_cast<int>(set);
      }
    }
  }
}

TYPED_TEST(LoopsTest, MaxOfNothingIsMinusInfinity) {
  for (const InstructionSet set : SetsHere()) {
    EXPECT_EQ(LoopsFor<TypeParam>(set).max(nullptr, 0), -std::numeric_limits<TypeParam>::infinity());
  }
}

}  // namespace
}  // namespace trireme::kernels
