// CpuOps: the ops of one compute type on host memory. Cuts each op into tasks for the pool; the
// arithmetic lies in the files beside.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "kernels/base/worker_pool.h"
#include "kernels/cpu/matmul.h"
#include "kernels/ops.h"

namespace nightshift::cpu {

// Scratch memory of floats, 64-byte aligned; grows and stays.
class Scratch {
 public:
  // At least `count` floats, whatever they hold. Invalidates what was given before.
  float* Get(int64_t count);

 private:
  struct Free {
    void operator()(float* memory) const;
  };
  std::unique_ptr<float, Free> memory_;
  int64_t capacity_ = 0;
};

// Used from one thread at a time, like its pool. The pool outlives it.
class CpuOps : public Ops {
 public:
  CpuOps(ComputeType compute_type, WorkerPool& pool);

  void EmbeddingGather(const WeightView& table, std::span<const int32_t> ids, bool accumulate,
                       MatrixView out) override;
  void RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) override;
  void LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                 MatrixView out) override;
  void HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight, float epsilon) override;
  void MatMul(const MatMulArgs& args) override;
  void Rope(const RopeArgs& args) override;
  void StoreKv(const StoreKvArgs& args) override;
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

 private:
  // Calls body(row, worker) for every row; `row_work` is its cost in elements, so that small calls
  // stay on the caller's thread.
  template <typename Body>
  void ForEachRow(int64_t rows, int64_t row_work, const Body& body);
  TileKind TileKindOf(DType weight_type) const;
  void StorePackedKv(const StoreKvArgs& args);
  void PackRows(const PackArgs& args);
  // The packed rows of x, block by block of kMaxMatMulRows; those of the call before with `same_x`.
  const std::byte* PackInputs(MatrixView x, TileKind kind, bool same_x);
  void MultiplyRowBlock(const MatMulArgs& args, const std::byte* packed, MatrixView out);
  // Cosines and sines [positions][2][pairs] of the call, kept between calls: every layer of a sweep
  // asks for the same ones.
  const float* Rotations(const RopeArgs& args);

  const ComputeType compute_type_;
  const bool has_bf16_dots_;  // and uses them
  const bool has_byte_dots_;
  WorkerPool& pool_;
  std::vector<Scratch> worker_scratch_;  // one a worker
  Scratch packed_rows_;
  MatrixView packed_x_;  // whose rows these are
  std::optional<TileKind> packed_kind_;
  std::vector<float> rotations_;
  std::vector<int32_t> rotation_positions_;
  std::vector<float> rotation_frequencies_;
  float rotation_magnitude_ = 0.0F;
};

}  // namespace nightshift::cpu
