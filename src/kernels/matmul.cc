#include <ATen/ops/addmm.h>
#include <ATen/ops/mm.h>

#include "kernels/kernels.h"

namespace trireme::kernels {
namespace {

void Multiply(const at::Tensor& a, const at::Tensor& b, double beta, const at::Tensor& c) {
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
