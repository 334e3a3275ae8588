// PacedOps: ops at the rate of slower hardware, with the same bits.
#pragma once

#include "kernels/base/clock.h"
#include "kernels/base/pacer.h"
#include "kernels/ops.h"

namespace nightshift::cpu {

// Hands every op on; matmul and attention return when they have taken their time at the rate.
// References must outlive this. Used from one thread at a time.
class PacedOps : public Ops {
 public:
  PacedOps(Ops& ops, double flops_per_s, const Clock& clock);

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
  Ops& ops_;
  const Clock& clock_;
  Pacer pacer_;
};

}  // namespace nightshift::cpu
