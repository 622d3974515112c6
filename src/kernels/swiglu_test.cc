#include <array>

#include "kernels/reference.h"
#include "kernels/test_tensors.h"

namespace trireme::kernels {
namespace {

using SwiGluTest = KernelTest;

TEST_P(SwiGluTest, AgreesWithTheReference) {
  for (const auto& [rows, width] : {std::array<int64_t, 2>{1, 1}, {3, 7}, {33, 129}}) {
    const at::Tensor gate_up = Random({rows, 2 * width}, "gate_up", 3), dy = Random({rows, width}, "dy");
    const at::Tensor y = Unwritten({rows, width}), dgate_up = Unwritten({rows, 2 * width});
    SwiGluForward(Typed(gate_up), y);
    EXPECT_TRUE(Close(reference::SwiGlu(gate_up), y)) << rows << " x " << width;
    SwiGluBackward(Typed(dy), Typed(gate_up), dgate_up);
    EXPECT_TRUE(Close(reference::SwiGluBackward(dy, gate_up), dgate_up)) << rows << " x " << width;
  }
}

// Far out, silu(x) is x or 0 and its slope 1 or 0; exp(1000) must not make a NaN of it.
TEST_P(SwiGluTest, LargeGatesSaturate) {
  const at::Tensor gate_up = at::full({2, 2}, 2, GetParam()), y = Unwritten({2, 1}), grad = Unwritten({2, 2});
  gate_up[0][0].fill_(1000);
  gate_up[1][0].fill_(-1000);
  SwiGluForward(gate_up, y);
  EXPECT_EQ(y[0][0].item<double>(), 2000);
  EXPECT_EQ(y[1][0].item<double>(), 0);
  SwiGluBackward(at::full({2, 1}, 1, GetParam()), gate_up, grad);
  EXPECT_EQ(grad[0][0].item<double>(), 2);  // up * 1
  EXPECT_EQ(grad[0][1].item<double>(), 1000);
  EXPECT_EQ(grad[1][0].item<double>(), 0);
  EXPECT_EQ(grad[1][1].item<double>(), 0);
}

TEST_P(SwiGluTest, SameBitsWhateverTheThreads) {
  const at::Tensor gate_up = Typed(Random({77, 90}, "gate_up")), dy = Typed(Random({77, 45}, "dy"));
  ExpectSameOnOneAndTwoThreads([&] {
    const at::Tensor y = Unwritten({77, 45}), grad = Unwritten({77, 90});
    SwiGluForward(gate_up, y);
    SwiGluBackward(dy, gate_up, grad);
    return std::vector<at::Tensor>{y, grad};
  });
}

TRIREME_FOR_BOTH_TYPES(SwiGluTest);

}  // namespace
}  // namespace trireme::kernels
