#include "kernels/reference.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace trireme::kernels::reference {
namespace {

at::Tensor Zeros(at::IntArrayRef sizes) { return at::zeros(sizes, at::kDouble); }

const double* In(const at::Tensor& tensor) {
  TRIREME_CHECK(tensor.is_contiguous(), "a reference takes contiguous tensors");
  return tensor.const_data_ptr<double>();
}

double* Out(const at::Tensor& tensor) { return tensor.mutable_data_ptr<double>(); }

double InverseRms(const double* row, int64_t width, double eps) {
  double squares = 0;
  for (int64_t d = 0; d < width; ++d) squares += row[d] * row[d];
  return 1 / std::sqrt(squares / static_cast<double>(width) + eps);
}

double Sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// Where element 0 of query head h, and of the key and value heads it uses, begins in the row of token t of sequence b.
struct HeadPlaces {
  int64_t seq, heads, kv_heads, head_dim;
  int64_t Row(int64_t b, int64_t t) const { return (b * seq + t) * (heads + 2 * kv_heads) * head_dim; }
  int64_t Group(int64_t h) const { return h / (heads / kv_heads); }
  int64_t Query(int64_t b, int64_t t, int64_t h) const { return Row(b, t) + h * head_dim; }
  int64_t Key(int64_t b, int64_t t, int64_t h) const { return Row(b, t) + (heads + Group(h)) * head_dim; }
  int64_t Value(int64_t b, int64_t t, int64_t h) const { return Row(b, t) + (heads + kv_heads + Group(h)) * head_dim; }
  int64_t Output(int64_t b, int64_t t, int64_t h) const { return ((b * seq + t) * heads + h) * head_dim; }
};

double Dot(const double* a, const double* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

at::Tensor Matmul(const at::Tensor& a, bool transpose_a, const at::Tensor& b, bool transpose_b, double beta,
                  const at::Tensor& c) {
  const int64_t rows = c.size(0), columns = c.size(1), inner = a.size(transpose_a ? 0 : 1);
  const at::Tensor result = Zeros({rows, columns});
  for (int64_t m = 0; m < rows; ++m) {
    for (int64_t n = 0; n < columns; ++n) {
      double sum = beta == 0 ? 0 : beta * In(c)[m * columns + n];
      for (int64_t k = 0; k < inner; ++k) {
        sum += In(a)[transpose_a ? k * rows + m : m * inner + k] * In(b)[transpose_b ? n * inner + k : k * columns + n];
      }
      Out(result)[m * columns + n] = sum;
    }
  }
  return result;
}

at::Tensor RmsNorm(const at::Tensor& x, const at::Tensor& weight, double eps) {
  const int64_t width = x.size(1);
  const at::Tensor y = Zeros(x.sizes());
  for (int64_t t = 0; t < x.size(0); ++t) {
    const double scale = InverseRms(In(x) + t * width, width, eps);
    for (int64_t d = 0; d < width; ++d) Out(y)[t * width + d] = In(x)[t * width + d] * scale * In(weight)[d];
  }
  return y;
}

// y_d = x_d r w_d and dr/dx_e = -r^3 x_e / D, so dx_e = r w_e dy_e - r^3 x_e / D * sum_d dy_d w_d x_d.
RmsNormGrads RmsNormBackward(const at::Tensor& dy, const at::Tensor& x, const at::Tensor& weight, double eps) {
  const int64_t width = x.size(1);
  const RmsNormGrads grads{Zeros(x.sizes()), Zeros({width})};
  for (int64_t t = 0; t < x.size(0); ++t) {
    const double *row = In(x) + t * width, *g = In(dy) + t * width;
    const double r = InverseRms(row, width, eps);
    double dot = 0;
    for (int64_t d = 0; d < width; ++d) dot += g[d] * In(weight)[d] * row[d];
    for (int64_t d = 0; d < width; ++d) {
      Out(grads.dx_TD)[t * width + d] =
          r * In(weight)[d] * g[d] - r * r * r * row[d] / static_cast<double>(width) * dot;
      Out(grads.dweight_D)[d] += g[d] * row[d] * r;
    }
  }
  return grads;
}

at::Tensor Rope(const at::Tensor& x, int64_t heads, int64_t head_dim, int64_t seq, double theta, bool inverse) {
  const int64_t half = head_dim / 2, stride = x.size(1);
  const at::Tensor y = x.clone();
  for (int64_t t = 0; t < x.size(0); ++t) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < half; ++i) {
        const double turn = static_cast<double>(t % seq) *
                            std::pow(theta, -2 * static_cast<double>(i) / static_cast<double>(head_dim)),
                     angle = inverse ? -turn : turn;
        const int64_t low = t * stride + h * head_dim + i, high = low + half;
        Out(y)[low] = In(x)[low] * std::cos(angle) - In(x)[high] * std::sin(angle);
        Out(y)[high] = In(x)[high] * std::cos(angle) + In(x)[low] * std::sin(angle);
      }
    }
  }
  return y;
}

at::Tensor SwiGlu(const at::Tensor& gate_up) {
  const int64_t width = gate_up.size(1) / 2;
  const at::Tensor y = Zeros({gate_up.size(0), width});
  for (int64_t t = 0; t < y.size(0); ++t) {
    for (int64_t f = 0; f < width; ++f) {
      const double gate = In(gate_up)[t * 2 * width + f], up = In(gate_up)[t * 2 * width + width + f];
      Out(y)[t * width + f] = gate * Sigmoid(gate) * up;
    }
  }
  return y;
}

at::Tensor SwiGluBackward(const at::Tensor& dy, const at::Tensor& gate_up) {
  const int64_t width = dy.size(1);
  const at::Tensor grad = Zeros(gate_up.sizes());
  for (int64_t t = 0; t < dy.size(0); ++t) {
    for (int64_t f = 0; f < width; ++f) {
      const int64_t at_gate = t * 2 * width + f, at_up = at_gate + width;
      const double gate = In(gate_up)[at_gate], up = In(gate_up)[at_up], g = In(dy)[t * width + f], s = Sigmoid(gate);
      Out(grad)[at_gate] = g * up * (s + gate * s * (1 - s));
      Out(grad)[at_up] = g * gate * s;
    }
  }
  return grad;
}

Attention CausalAttention(const at::Tensor& qkv, int64_t seq, int64_t heads, int64_t kv_heads, int64_t head_dim) {
  const HeadPlaces at{seq, heads, kv_heads, head_dim};
  const int64_t batch = qkv.size(0) / seq;
  const Attention result{Zeros({batch * seq, heads * head_dim}), Zeros({batch, heads, seq}),
                         Zeros({batch, heads, seq, seq})};
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < seq; ++i) {
        double* p = Out(result.probabilities) + ((b * heads + h) * seq + i) * seq;
        for (int64_t j = 0; j <= i; ++j) {
          p[j] = scale * Dot(In(qkv) + at.Query(b, i, h), In(qkv) + at.Key(b, j, h), head_dim);
        }
        const double max = *std::max_element(p, p + i + 1);
        double sum = 0;
        for (int64_t j = 0; j <= i; ++j) sum += std::exp(p[j] - max);
        const double lse = max + std::log(sum);
        Out(result.log_sum_exp)[(b * heads + h) * seq + i] = lse;
        for (int64_t j = 0; j <= i; ++j) {
          p[j] = std::exp(p[j] - lse);
          for (int64_t c = 0; c < head_dim; ++c) {
            Out(result.out)[at.Output(b, i, h) + c] += p[j] * In(qkv)[at.Value(b, j, h) + c];
          }
        }
      }
    }
  }
  return result;
}

// dP = dout v^T, dS = P (dP - sum_j P dP), dq = scale dS k, dk = scale dS^T q, dv = P^T dout.
at::Tensor CausalAttentionBackward(const at::Tensor& dout, const at::Tensor& qkv, int64_t seq, int64_t heads,
                                   int64_t kv_heads, int64_t head_dim) {
  const HeadPlaces at{seq, heads, kv_heads, head_dim};
  const at::Tensor probabilities = CausalAttention(qkv, seq, heads, kv_heads, head_dim).probabilities;
  const at::Tensor dqkv = Zeros(qkv.sizes());
  const double scale = 1 / std::sqrt(static_cast<double>(head_dim));
  for (int64_t b = 0; b < qkv.size(0) / seq; ++b) {
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t i = 0; i < seq; ++i) {
        const double *p = In(probabilities) + ((b * heads + h) * seq + i) * seq, *g = In(dout) + at.Output(b, i, h);
        double mean = 0;
        for (int64_t j = 0; j <= i; ++j) mean += p[j] * Dot(g, In(qkv) + at.Value(b, j, h), head_dim);
        for (int64_t j = 0; j <= i; ++j) {
          const double ds = scale * p[j] * (Dot(g, In(qkv) + at.Value(b, j, h), head_dim) - mean);
          for (int64_t c = 0; c < head_dim; ++c) {
            Out(dqkv)[at.Query(b, i, h) + c] += ds * In(qkv)[at.Key(b, j, h) + c];
            Out(dqkv)[at.Key(b, j, h) + c] += ds * In(qkv)[at.Query(b, i, h) + c];
            Out(dqkv)[at.Value(b, j, h) + c] += p[j] * g[c];
          }
        }
      }
    }
  }
  return dqkv;
}

CrossEntropyResult CrossEntropy(const at::Tensor& logits, int64_t valid, const at::Tensor& labels, double scale) {
  const int64_t width = logits.size(1);
  CrossEntropyResult result{0, Zeros(logits.sizes())};
  for (int64_t t = 0; t < logits.size(0); ++t) {
    const int64_t label = labels.const_data_ptr<int64_t>()[t];
    if (label == -100) continue;
    const double* row = In(logits) + t * width;
    const double max = *std::max_element(row, row + valid);
    double sum = 0;
    for (int64_t v = 0; v < valid; ++v) sum += std::exp(row[v] - max);
    result.loss += max + std::log(sum) - row[label];
    for (int64_t v = 0; v < valid; ++v) {
      Out(result.dlogits_TV)[t * width + v] = scale * (std::exp(row[v] - max) / sum - (v == label ? 1 : 0));
    }
  }
  return result;
}

void AdamW(const AdamWStep& hyper, const at::Tensor& value, const at::Tensor& grad, const at::Tensor& first_moment,
           const at::Tensor& second_moment) {
  const double step = static_cast<double>(hyper.step);
  for (int64_t i = 0; i < value.numel(); ++i) {
    const double g = hyper.grad_scale * In(grad)[i];
    double &w = Out(value)[i], &m = Out(first_moment)[i], &v = Out(second_moment)[i];
    m = hyper.beta1 * m + (1 - hyper.beta1) * g;
    v = hyper.beta2 * v + (1 - hyper.beta2) * g * g;
    const double corrected_m = m / (1 - std::pow(hyper.beta1, step)),
                 corrected_v = v / (1 - std::pow(hyper.beta2, step));
    w -= hyper.lr * (corrected_m / (std::sqrt(corrected_v) + hyper.eps) + hyper.weight_decay * w);
  }
}

}  // namespace trireme::kernels::reference
