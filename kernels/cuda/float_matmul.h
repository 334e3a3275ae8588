// FloatMatMul: products with weights of floats, by cuBLASLt.
//
// A row's bits depend on nothing but the row: for weights of one shape and type there is one
// algorithm, found once for kAlgorithmRows rows, without split sums; calls of any row count use it,
// their rows padded to a multiple of kRowMultiple and cut into blocks.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <tuple>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/resources.h"
#include "kernels/dtype.h"
#include "kernels/ops.h"

namespace nightshift::cuda {

// Weights are rows [N][K], padded as their panels were: what UnpackPanels left in their place. Used
// by one thread at a time.
class FloatMatMul {
 public:
  // Rows that a block of rows is padded to, and that it has at most.
  static constexpr int64_t kRowMultiple = 128;
  static constexpr int64_t kAlgorithmRows = 512;
  // Device memory that it takes for good: a block's inputs (512 rows of 32768 in bf16), products
  // of 4096 outputs, and weights that are widened.
  static constexpr int64_t kInputBytes = int64_t{32} << 20;
  static constexpr int64_t kProductBytes = int64_t{8} << 20;
  static constexpr int64_t kWidenedBytes = int64_t{16} << 20;

  // `multiplies_bf16`: the device has bf16 products (compute capability 8.0); else bf16 values are
  // multiplied as f32, to the same values and more slowly. Errors: FAILED_PRECONDITION (cuBLAS is
  // not there), RESOURCE_EXHAUSTED (device memory), INTERNAL.
  static absl::StatusOr<std::unique_ptr<FloatMatMul>> Create(bool multiplies_bf16);
  ~FloatMatMul();

  // Weights of F32, F16, BF16 in compute type f32, of BF16 in the others. Asynchronous on the
  // launcher's stream. Where cuBLAS has no algorithm nothing is written, and status() says so.
  void Multiply(ComputeType compute_type, const MatMulArgs& args, Launcher& launcher);
  // Of inputs that are there: the next call's are others, whatever it says.
  void ForgetInputs() { packed_x_ = {}; }
  // The first thing that cuBLAS refused, with the shape.
  const absl::Status& status() const { return status_; }

 private:
  struct Algorithm {
    cublasLtMatmulAlgo_t algorithm;
    bool exists = false;
  };
  // One multiplied type of one call.
  struct Block {
    DType type = DType::kF32;
    int64_t inputs = 0;  // padded
    int64_t padded_rows = 0;
    int64_t max_rows = 0;
    int64_t max_outputs = 0;
  };

  FloatMatMul(const CublasLibrary& library, bool multiplies_bf16)
      : library_(library), multiplies_bf16_(multiplies_bf16) {}

  Block PlanBlocks(ComputeType compute_type, const WeightShardView& weight) const;
  void MultiplyRows(const MatMulArgs& args, const Block& block, MatrixView out, Launcher& launcher);
  // products[rows][outputs] = inputs weights^T.
  void MultiplyChunk(const std::byte* weights, int64_t outputs, const Block& block,
                     Launcher& launcher);
  const Algorithm& AlgorithmFor(DType type, int64_t outputs, int64_t inputs);
  Algorithm FindAlgorithm(DType type, int64_t outputs, int64_t inputs);
  void Note(cublasStatus_t status, DType type, int64_t outputs, int64_t inputs);

  CublasLibrary library_;
  bool multiplies_bf16_;
  cublasLtHandle_t handle_ = nullptr;
  DeviceMemory inputs_;
  DeviceMemory products_;
  DeviceMemory widened_;
  std::map<std::tuple<DType, int64_t, int64_t>, Algorithm> algorithms_;
  // What `inputs_` holds, for calls with the same x.
  MatrixView packed_x_;
  DType packed_type_ = DType::kF32;
  bool packed_rounds_ = false;
  absl::Status status_;
};

}  // namespace nightshift::cuda
