#include "kernels/cpu/paced_ops.h"

#include <algorithm>

namespace nightshift::cpu {
namespace {

double MatMulFlops(const MatMulArgs& args) {
  return 2.0 * static_cast<double>(args.x.rows) * static_cast<double>(args.weight.inputs) *
         static_cast<double>(args.weight.outputs);
}

// A key that a query sees costs a multiply-add for its score and one for its value, for each
// dimension of each query head; a sparse row takes few of the values.
double AttentionFlops(const AttentionArgs& args) {
  double products = 0.0;
  for (const AttentionSpan& span : args.spans) {
    for (int64_t row = 0; row < span.num_rows; ++row) {
      const int64_t before = span.first_position + row + 1;
      const auto seen =
          static_cast<double>(args.window > 0 ? std::min(before, args.window) : before);
      const bool is_sparse = before > span.sparse_from;
      products += seen * (is_sparse ? 1.0 + args.sparse_fraction : 2.0);
    }
  }
  return 2.0 * products * static_cast<double>(args.num_heads * args.layout.head_width);
}

}  // namespace

PacedOps::PacedOps(Ops& ops, double flops_per_s, const Clock& clock)
    : ops_(ops), clock_(clock), pacer_(flops_per_s, clock) {}

void PacedOps::EmbeddingGather(const WeightView& table, std::span<const int32_t> ids,
                               bool accumulate, MatrixView out) {
  ops_.EmbeddingGather(table, ids, accumulate, out);
}

void PacedOps::RmsNorm(MatrixView x, const float* weight, float epsilon, MatrixView out) {
  ops_.RmsNorm(x, weight, epsilon, out);
}

void PacedOps::LayerNorm(MatrixView x, const float* weight, const float* bias, float epsilon,
                         MatrixView out) {
  ops_.LayerNorm(x, weight, bias, epsilon, out);
}

void PacedOps::HeadRmsNorm(MatrixView x, int64_t head_width, const float* weight, float epsilon) {
  ops_.HeadRmsNorm(x, head_width, weight, epsilon);
}

void PacedOps::MatMul(const MatMulArgs& args) {
  const int64_t start_us = clock_.MonotonicMicros();
  ops_.MatMul(args);
  pacer_.Finish(MatMulFlops(args), start_us);
}

void PacedOps::Rope(const RopeArgs& args) {
  ops_.Rope(args);
}

void PacedOps::StoreKv(const StoreKvArgs& args) {
  ops_.StoreKv(args);
}

void PacedOps::Attention(const AttentionArgs& args) {
  const int64_t start_us = clock_.MonotonicMicros();
  ops_.Attention(args);
  pacer_.Finish(AttentionFlops(args), start_us);
}

void PacedOps::Activate(Activation activation, MatrixView x) {
  ops_.Activate(activation, x);
}

void PacedOps::GatedActivate(Activation activation, MatrixView gate, MatrixView up) {
  ops_.GatedActivate(activation, gate, up);
}

void PacedOps::Scale(float factor, MatrixView x) {
  ops_.Scale(factor, x);
}

void PacedOps::AddScaled(MatrixView x, float factor, MatrixView out) {
  ops_.AddScaled(x, factor, out);
}

void PacedOps::SoftCap(float cap, MatrixView x) {
  ops_.SoftCap(cap, x);
}

void PacedOps::AddScaledRows(MatrixView x, std::span<const int64_t> rows,
                             std::span<const float> factors, MatrixView out) {
  ops_.AddScaledRows(x, rows, factors, out);
}

void PacedOps::GatherRows(MatrixView x, std::span<const int64_t> rows, MatrixView out) {
  ops_.GatherRows(x, rows, out);
}

void PacedOps::HeadReduce(const HeadReduceArgs& args) {
  ops_.HeadReduce(args);
}

}  // namespace nightshift::cpu
