#include <ATen/ops/zeros.h>

#include <array>
#include <limits>

#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

using MatmulTest = KernelTest;

TEST_P(MatmulTest, AllLayoutsAgreeWithTheReference) {
  for (const auto& [m, n, k] : {std::array<int64_t, 3>{1, 1, 1}, {3, 5, 7}, {1, 9, 33}, {65, 33, 129}}) {
    const at::Tensor c = Random({m, n}, "c");
    for (const double beta : {0.0, 1.0}) {
      const at::Tensor a = Random({m, k}, "a"), b = Random({k, n}, "b"), a_t = Random({k, m}, "at"),
                       b_t = Random({n, k}, "bt");
      at::Tensor got = Typed(c);
      MatmulNT(Typed(a), Typed(b_t), beta, got);
      EXPECT_TRUE(Close(reference::Matmul(a, false, b_t, true, beta, c), got)) << m << " " << n << " " << k;
      got = Typed(c);
      MatmulNN(Typed(a), Typed(b), beta, got);
      EXPECT_TRUE(Close(reference::Matmul(a, false, b, false, beta, c), got)) << m << " " << n << " " << k;
      got = Typed(c);
      MatmulTN(Typed(a_t), Typed(b), beta, got);
      EXPECT_TRUE(Close(reference::Matmul(a_t, true, b, false, beta, c), got)) << m << " " << n << " " << k;
    }
  }
}

// The fused projections are columns of a wider buffer; the columns beside them stay as they are.
TEST_P(MatmulTest, WritesIntoColumnsOfAWiderBuffer) {
  const at::Tensor a = Random({4, 6}, "a"), b = Random({5, 6}, "b"), wide = Random({4, 12}, "wide");
  const at::Tensor got = Typed(wide), expected = wide.clone();
  expected.narrow(1, 3, 5).add_(reference::Matmul(a, false, b, true, 0, Random({4, 5}, "none")));
  MatmulNT(Typed(a), Typed(b), 1, got.narrow(1, 3, 5));
  EXPECT_TRUE(Close(expected, got));
  EXPECT_TRUE(at::equal(got.narrow(1, 0, 3), Typed(wide).narrow(1, 0, 3)));
  EXPECT_TRUE(at::equal(got.narrow(1, 8, 4), Typed(wide).narrow(1, 8, 4)));
}

// Nothing to sum: beta 0 leaves zeros (not what the memory held), beta 1 leaves c. No rows or columns: no work.
TEST_P(MatmulTest, EmptyDimensions) {
  const at::Tensor c = Unwritten({2, 3});
  MatmulNT(Typed(at::zeros({2, 0})), Typed(at::zeros({3, 0})), 1, c);
  EXPECT_TRUE(at::equal(c, Unwritten({2, 3})));
  MatmulTN(Typed(at::zeros({0, 2})), Typed(at::zeros({0, 3})), 0, c);
  EXPECT_TRUE(at::equal(c, Typed(at::zeros({2, 3}))));
  MatmulNN(Typed(at::zeros({0, 4})), Typed(at::zeros({4, 3})), 0, Unwritten({0, 3}));
  MatmulNN(Typed(at::zeros({2, 4})), Typed(at::zeros({4, 0})), 1, Unwritten({2, 0}));
}

// beta 0 overwrites: a NaN left in the output buffer must not survive as 0 * NaN.
TEST_P(MatmulTest, BetaZeroOverwritesNan) {
  const at::Tensor c = at::full({1, 1}, std::numeric_limits<double>::quiet_NaN(), GetParam());
  MatmulNN(at::full({1, 2}, 3, GetParam()), at::full({2, 1}, 2, GetParam()), 0, c);
  EXPECT_EQ(c.item<double>(), 12);  // 3 * 2 + 3 * 2
}

// Weight gradients sum over the tokens: the long inner dimension is where a library would split the sum over threads.
TEST_P(MatmulTest, SameBitsWhateverTheThreads) {
  const at::Tensor a = Typed(Random({2048, 96}, "a")), b = Typed(Random({2048, 65}, "b"));
  const at::Tensor square = Typed(Random({257, 257}, "square"));
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor tn = Unwritten({96, 65}), nt = Unwritten({2048, 2048}), nn = Unwritten({257, 257});
    MatmulTN(a, b, 0, tn);
    MatmulNT(a, a, 0, nt);
    MatmulNN(square, square, 0, nn);
    return std::vector<at::Tensor>{tn, nt, nn};
  });
}

TEST_P(MatmulTest, WrongShapesAreRefused) {
  const at::Tensor a = Unwritten({2, 3}), b = Unwritten({3, 4});
  EXPECT_ANY_THROW(MatmulNN(a, b, 0, Unwritten({2, 5})));
  EXPECT_ANY_THROW(MatmulNN(a, b, 1, Unwritten({2, 5})));
  EXPECT_ANY_THROW(MatmulNN(a, Unwritten({4, 4}), 0, Unwritten({2, 4})));
}

TRIREME_FOR_BOTH_TYPES(MatmulTest);

}  // namespace
}  // namespace trireme::kernels
