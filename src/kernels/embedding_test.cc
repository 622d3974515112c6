#include <ATen/ops/zeros.h>

#include "kernels/kernels.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

using EmbeddingTest = KernelTest;

// A shard that holds tokens 4..7: 4 and 7 are its rows 0 and 3, 3 and 8 belong to its neighbours.
TEST_P(EmbeddingTest, LooksUpItsOwnRowsOnly) {
  const at::Tensor table = Random({4, 3}, "table"), y = Unwritten({5, 3});
  EmbeddingForward(Integers({4, 3, 7, 8, 4}), Typed(table), 4, y);
  const at::Tensor expected = at::zeros({5, 3}, at::kDouble);
  expected[0].copy_(table[0]);
  expected[2].copy_(table[3]);
  expected[4].copy_(table[0]);
  EXPECT_TRUE(at::equal(y, Typed(expected)));
}

// Token 5 comes twice (positions 0 and 2), token 6 once, tokens 4 and 7 never, 3 and 8 are elsewhere.
TEST_P(EmbeddingTest, SumsTheGradientsOfEqualTokens) {
  const at::Tensor dy = Random({5, 3}, "dy"), dtable = Unwritten({4, 3}), ids = Integers({5, 3, 5, 6, 8});
  const at::Tensor expected = at::zeros({4, 3}, at::kDouble);
  expected[1].copy_(dy[0].add(dy[2]));
  expected[2].copy_(dy[3]);
  EmbeddingBackward(ids, Typed(dy), 4, 0, dtable);
  EXPECT_TRUE(Close(expected, dtable));
  EmbeddingBackward(ids, Typed(dy), 4, 1, dtable);
  EXPECT_TRUE(Close(expected.mul(2), dtable));
}

TRIREME_FOR_BOTH_TYPES(EmbeddingTest);

}  // namespace
}  // namespace trireme::kernels
