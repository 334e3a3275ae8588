// The same matmul by other libraries: out [M, N] = x [M, K] * weight [N, K]^T, all cores that
// OMP_NUM_THREADS and OPENBLAS_NUM_THREADS allow.
#pragma once

#include <cstdint>
#include <functional>

namespace nightshift {

struct MatMulShape {
  int64_t rows = 0;     // M
  int64_t outputs = 0;  // N
  int64_t inputs = 0;   // K
};

// f32, or bf16 inputs and weights with f32 outputs. Weights lie in the layout that oneDNN likes
// best. Empty where oneDNN has no such matmul for this machine.
std::function<void()> OneDnnMatMul(const MatMulShape& shape, bool is_bf16);

// f32.
std::function<void()> OpenBlasMatMul(const MatMulShape& shape);

}  // namespace nightshift
