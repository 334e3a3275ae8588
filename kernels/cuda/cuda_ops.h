// CudaOps: the ops of one compute type on a GPU's memory, asynchronous on one stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/attention.h"
#include "kernels/cuda/float_matmul.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/staging.h"
#include "kernels/ops.h"

namespace nightshift::cuda {

// Views are of device memory; spans (ids, positions, rows, factors, frequencies, requests, states)
// are of the host's and are read before an op returns. HeadReduce and ReadRows wait for the stream.
// Once something has failed ops do nothing. Used from one thread at a time.
class CudaOps : public Ops {
 public:
  // For kF32 and kBF16. `stream` outlives the ops and belongs to the present device; so does
  // `float_matmul`, which nobody else uses meanwhile.
  // Errors: FAILED_PRECONDITION for a compute type that no kernel has, RESOURCE_EXHAUSTED naming
  // the bytes of scratch memory, INTERNAL.
  static absl::StatusOr<std::unique_ptr<CudaOps>> Create(ComputeType compute_type,
                                                         cudaStream_t stream,
                                                         FloatMatMul& float_matmul);
  ~CudaOps() override;

  void EmbeddingGather(const WeightView& table, std::span<const int32_t> ids, bool accumulate,
                       MatrixView out) override;
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                 MatrixView out) override;
  void HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight, float epsilon) override;
  void MatMul(const MatMulArgs& args) override;
  void Rope(const RopeArgs& args) override;
  void StoreKv(const StoreKvArgs& args) override;
  // No sparse rows: a CHECK.
  void Attention(const AttentionArgs& args) override;
  void Activate(Activation activation, MatrixView x) override;
  void GatedActivate(Activation activation, MatrixView gate, MatrixView up) override;
  void Scale(float factor, MatrixView x) override;
  void AddScaled(MatrixView x, float factor, MatrixView out) override;
  void SoftCap(float cap, MatrixView x) override;
  void AddScaledRows(MatrixView x, std::span<const int64_t> rows, std::span<const float> factors,
                     MatrixView out) override;
  void GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) override;
  void HeadReduce(const HeadReduceArgs& args) override;
  void ReadRows(MatrixView x, std::span<float> to) override;

  // The first failure of a launch or copy, named by its op. Errors: INTERNAL.
  absl::Status status() const;

 private:
  CudaOps(ComputeType compute_type, cudaStream_t stream, FloatMatMul& float_matmul)
      : compute_type_(compute_type), launcher_(stream), float_matmul_(float_matmul) {}

  // False once something has failed; else there is room for `bytes` of staged arrays.
  bool Begin(const char* op, size_t bytes);
  template <typename T>
  T* Stage(const char* op, std::span<const T> values);
  void Touch(const WeightShardView& shard);
  // Requests [first, last) of a head call, whose adjusted logits fit the scratch memory.
  void ReduceRequests(const HeadReduceArgs& args, size_t first, size_t last);
  size_t AdjustedRequests(const HeadReduceArgs& args, size_t first) const;

  const ComputeType compute_type_;
  Launcher launcher_;
  FloatMatMul& float_matmul_;
  std::unique_ptr<Staging> staging_;
  std::byte* scratch_ = nullptr;   // of attention's tiles and of adjusted logits, in turn
  int64_t wanted_blocks_ = 1;      // of attention
  bool has_tensor_cores_ = false;  // of bf16
};

}  // namespace nightshift::cuda
