#pragma once
// Row-major products of plain memory, for kernels whose matrices are strided blocks of a tensor: a call without a
// tensor's overhead. Runs on the calling thread alone inside a parallel region. Fortran BLAS, from libtorch_cpu.

#include <cstdint>

extern "C" {
void sgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const float* alpha,
            const float* a, const int* lda, const float* b, const int* ldb, const float* beta, float* c,
            const int* ldc);
void dgemm_(const char* transa, const char* transb, const int* m, const int* n, const int* k, const double* alpha,
            const double* a, const int* lda, const double* b, const int* ldb, const double* beta, double* c,
            const int* ldc);
}

namespace trireme::kernels {

template <class T>
struct Block {  // of a row-major matrix; transposed: the product sees its transpose
  T* data;
  int64_t stride;
  bool transposed = false;
};

// c[m, n] = alpha a[m, k] b[k, n] + beta c
template <class T>
void Gemm(int64_t m, int64_t n, int64_t k, T alpha, Block<const T> a, Block<const T> b, T beta, Block<T> c) {
  // Column-major BLAS sees the transposes: c^T = b^T a^T.
  const int rows = static_cast<int>(n), columns = static_cast<int>(m), inner = static_cast<int>(k),
            ldb = static_cast<int>(b.stride), lda = static_cast<int>(a.stride), ldc = static_cast<int>(c.stride);
  const char *op_b = b.transposed ? "T" : "N", *op_a = a.transposed ? "T" : "N";
  if constexpr (sizeof(T) == sizeof(float)) {
    sgemm_(op_b, op_a, &rows, &columns, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c.data, &ldc);
  } else {
    dgemm_(op_b, op_a, &rows, &columns, &inner, &alpha, b.data, &ldb, a.data, &lda, &beta, c.data, &ldc);
  }
}

}  // namespace trireme::kernels
