#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

struct Case {
  int64_t batch, seq, heads, kv_heads, head_dim;
  int64_t Row() const { return (heads + 2 * kv_heads) * head_dim; }
};
// One token; odd sizes throughout; grouped heads; all heads on one key; beyond the flash kernel's blocks (32, 64, 256).
constexpr Case kCases[] = {{1, 1, 1, 1, 1},  {2, 1, 2, 1, 4},    {2, 7, 3, 3, 5},   {1, 33, 4, 2, 8},
                           {2, 65, 6, 1, 7}, {1, 200, 2, 2, 16}, {1, 300, 2, 1, 8}, {1, 800, 1, 1, 4}};

using AttentionTest = KernelTest;

TEST_P(AttentionTest, AgreesWithTheReference) {
  for (const Case& c : kCases) {
    SCOPED_TRACE(::testing::Message() << "batch " << c.batch << " seq " << c.seq << " heads " << c.heads << "/"
                                      << c.kv_heads << " width " << c.head_dim);
    const int64_t rows = c.batch * c.seq, width = c.heads * c.head_dim;
    const at::Tensor qkv = Random({rows, c.Row()}, "qkv"), dout = Random({rows, width}, "dout");
    const at::Tensor out = Unwritten({rows, width}), lse = Unwritten({c.batch, c.heads, c.seq});
    CausalAttentionForward(Typed(qkv), c.seq, c.heads, c.kv_heads, c.head_dim, out, lse);
    const reference::Attention expected = reference::CausalAttention(qkv, c.seq, c.heads, c.kv_heads, c.head_dim);
    EXPECT_TRUE(Close(expected.out, out));
    EXPECT_TRUE(Close(expected.log_sum_exp, lse));

    const at::Tensor dqkv = Unwritten({rows, c.Row()});
    CausalAttentionBackward(Typed(dout), Typed(qkv), out, lse, c.seq, c.heads, c.kv_heads, c.head_dim, dqkv);
    EXPECT_TRUE(Close(reference::CausalAttentionBackward(dout, qkv, c.seq, c.heads, c.kv_heads, c.head_dim), dqkv));
  }
}

// A token sees itself alone at position 0: its output is its value, whatever the scores.
TEST_P(AttentionTest, FirstTokenGetsItsOwnValue) {
  const at::Tensor qkv = Typed(Random({5, 12}, "qkv", 30)), out = Unwritten({5, 4}), lse = Unwritten({1, 1, 5});
  CausalAttentionForward(qkv, 5, 1, 1, 4, out, lse);
  EXPECT_TRUE(Close(qkv[0].narrow(0, 8, 4).to(at::kDouble), out[0]));
}

TEST_P(AttentionTest, LaterTokensChangeNothing) {
  const at::Tensor qkv = Typed(Random({70, 24}, "qkv")), other = qkv.clone();
  other.narrow(0, 41, 29).fill_(3);
  const at::Tensor a = Unwritten({70, 8}), b = Unwritten({70, 8}), lse = Unwritten({1, 2, 70});
  CausalAttentionForward(qkv, 70, 2, 2, 4, a, lse);
  CausalAttentionForward(other, 70, 2, 2, 4, b, lse);
  EXPECT_TRUE(Close(a.narrow(0, 0, 41).to(at::kDouble), b.narrow(0, 0, 41)));
  EXPECT_FALSE(at::equal(a, b));
}

TEST_P(AttentionTest, SameBitsWhateverTheThreads) {
  const at::Tensor qkv = Typed(Random({2 * 133, 8 * 16}, "qkv")), dout = Typed(Random({2 * 133, 4 * 16}, "dout"));
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor out = Unwritten({2 * 133, 64}), lse = Unwritten({2, 4, 133}), dqkv = Unwritten({2 * 133, 128});
    CausalAttentionForward(qkv, 133, 4, 2, 16, out, lse);
    CausalAttentionBackward(dout, qkv, out, lse, 133, 4, 2, 16, dqkv);
    return std::vector<at::Tensor>{out, lse, dqkv};
  });
}

TRIREME_FOR_BOTH_TYPES(AttentionTest);

}  // namespace
}  // namespace trireme::kernels
