// What lies around cuBLAS's products: weights from panels to rows, inputs rounded and padded, results
// with bias into their place. All asynchronous on the launcher's stream.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/dtype.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda {

// Panels [K/2][64][2] of a float type to rows [64][K]: `target` has room for `panels` of them and
// does not overlap `source`. `inputs` is K, padded.
void LaunchUnpackPanels(Launcher& launcher, const std::byte* source, int64_t element_bytes,
                        int64_t panels, int64_t inputs, std::byte* target);

// x to rows [padded_rows][padded_inputs], rounded to bf16; as bf16, or as f32 that hold such values
// (`target_type`). What is padded is 0.
struct PackRowsArgs {
  MatrixView x;
  int64_t padded_rows = 0;
  int64_t padded_inputs = 0;
  bool rounds = false;  // to bf16
  DType target_type = DType::kF32;
  std::byte* target = nullptr;
};
void LaunchPackRows(Launcher& launcher, const PackRowsArgs& args);

// 16-bit floats [rows][columns] to f32.
void LaunchWiden(Launcher& launcher, const std::byte* source, DType type, int64_t rows,
                 int64_t columns, float* target);

// out = product + bias, or out + (product + bias). Rows of `product` are `stride` apart; `bias`, of
// out's first column, may be null.
void LaunchStoreProduct(Launcher& launcher, const float* product, int64_t stride, const float* bias,
                        bool accumulate, MatrixView out);

}  // namespace nightshift::cuda
