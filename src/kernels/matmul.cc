#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include <fmt/ranges.h>

#include "base/error.h"
#include "kernels/kernels.h"

namespace trireme::kernels {
namespace {

void Multiply(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c) {
  // ATen would warn and give `out` other memory of the right shape: the caller's buffer would never be written.
  TRIREME_CHECK(a.dim() == 2 && b.dim() == 2 && c.dim() == 2 && a.size(1) == b.size(0) && c.size(0) == a.size(0) &&
                    c.size(1) == b.size(1),
                "matmul of {} by {} into {}", fmt::join(a.sizes(), "x"), fmt::join(b.sizes(), "x"),
                fmt::join(c.sizes(), "x"));
  TRIREME_CHECK(beta == 0 || beta == 1, "matmul with beta {}", beta);
  at::Tensor out = c;
  if (beta == 0) {
    at::mm_out(out, a, b);
  } else {
    at::addmm_out(out, out, a, b, beta, 1);
  }
}

}  // namespace

void MatmulNT(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c) {
  Multiply(a, b.t(), beta, c);
}
void MatmulNN(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c) { Multiply(a, b, beta, c); }
void MatmulTN(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c) {
  Multiply(a.t(), b, beta, c);
}

}  // namespace trireme::kernels
