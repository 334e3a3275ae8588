#include "engine/model/linear.h"

namespace nightshift {

void MultiplyInOrder(const MatMulWeights& weights, MatrixView x, bool accumulate, MatrixView out,
                     WeightAccess* access, Ops& ops) {
  for (size_t i = 0; i < weights.matrix.shards.size(); ++i) {
    const WeightShardView& shard = weights.matrix.shards[i];
    const bool is_streamed = shard.data == nullptr;
    ops.MatMul({.x = x,
                .weight = is_streamed ? access->Acquire({weights.tensor, i}) : shard,
                .bias = weights.bias,
                .out = out,
                .accumulate = accumulate});
    if (is_streamed) {
      access->Release();
    }
  }
}

}  // namespace nightshift
