#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

struct Case {
  int64_t batch, seq, heads, kv_heads, head_dim;
  int64_t Row() const { return (heads + 2 * kv_heads) * head_dim; }
};
// One token; odd sizes throughout; grouped heads; all heads on one key; one row less and more than a block of 32; wide
// heads; many blocks.
constexpr Case kCases[] = {{1, 1, 1, 1, 1},   {2, 1, 2, 1, 4},    {2, 7, 3, 3, 5},   {1, 33, 4, 2, 8},
                           {2, 65, 6, 1, 7},  {2, 31, 2, 1, 256}, {1, 32, 2, 2, 64}, {1, 200, 2, 2, 16},
                           {1, 300, 2, 1, 8}, {1, 800, 1, 1, 4}};

class AttentionTest : public KernelTest {
 protected:
  at::Tensor Scratch(const AttentionShape& shape) const { return Unwritten({AttentionScratch(shape)}); }
};

TEST_P(AttentionTest, AgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << "batch " << c.batch << " seq " << c.seq << " heads " << c.heads << "/"
                                      << c.kv_heads << " width " << c.head_dim);
    const int64_t rows = c.batch * c.seq, width = c.heads * c.head_dim;
    const at::Tensor qkv = Random({rows, c.Row()}, "qkv"), dout = Random({rows, width}, "dout");
    const at::Tensor out = Unwritten({rows, width}), lse = Unwritten({c.batch, c.heads, c.seq});
    const AttentionShape shape{c.seq, c.heads, c.kv_heads, c.head_dim};
    CausalAttentionForward(Typed(qkv), shape, out, lse, Scratch(shape));
    const reference::Attention expected = reference::CausalAttention(qkv, c.seq, c.heads, c.kv_heads, c.head_dim);
    EXPECT_TRUE(Close(expected.out, out));
    EXPECT_TRUE(Close(expected.log_sum_exp, lse));

    const at::Tensor dqkv = Unwritten({rows, c.Row()});
    CausalAttentionBackward(Typed(dout), Typed(qkv), out, lse, shape, dqkv, Scratch(shape));
    EXPECT_TRUE(Close(reference::CausalAttentionBackward(dout, qkv, c.seq, c.heads, c.kv_heads, c.head_dim), dqkv));
  }
}

// A token sees itself alone at position 0: its output is its value, whatever the scores.
TEST_P(AttentionTest, FirstTokenGetsItsOwnValue) {
  const at::Tensor qkv = Typed(Random({5, 12}, "qkv", 30)), out = Unwritten({5, 4}), lse = Unwritten({1, 1, 5});
  const AttentionShape shape{5, 1, 1, 4};
  CausalAttentionForward(qkv, shape, out, lse, Scratch(shape));
  EXPECT_TRUE(Close(qkv[0].narrow(0, 8, 4).to(at::kDouble), out[0]));
}

TEST_P(AttentionTest, LaterTokensChangeNothing) {
  const at::Tensor qkv = Typed(Random({70, 24}, "qkv")), other = qkv.clone();
  other.narrow(0, 41, 29).fill_(3);
  const at::Tensor a = Unwritten({70, 8}), b = Unwritten({70, 8}), lse = Unwritten({1, 2, 70});
  const AttentionShape shape{70, 2, 2, 4};
  CausalAttentionForward(qkv, shape, a, lse, Scratch(shape));
  CausalAttentionForward(other, shape, b, lse, Scratch(shape));
  EXPECT_TRUE(Close(a.narrow(0, 0, 41).to(at::kDouble), b.narrow(0, 0, 41)));
  EXPECT_FALSE(at::equal(a, b));
}

TEST_P(AttentionTest, SameBitsWhateverTheThreads) {
  const at::Tensor qkv = Typed(Random({2 * 133, 8 * 16}, "qkv")), dout = Typed(Random({2 * 133, 4 * 16}, "dout"));
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor out = Unwritten({2 * 133, 64}), lse = Unwritten({2, 4, 133}), dqkv = Unwritten({2 * 133, 128});
    const AttentionShape shape{133, 4, 2, 16};
    CausalAttentionForward(qkv, shape, out, lse, Scratch(shape));
    CausalAttentionBackward(dout, qkv, out, lse, shape, dqkv, Scratch(shape));
    return std::vector<at::Tensor>{out, lse, dqkv};
  });
}

TRIREME_FOR_BOTH_TYPES(AttentionTest);

}  // namespace
}  // namespace trireme::kernels
