#include "engine/model/linear.h"

namespace nightshift {

void MultiplyInOrder(std::span<const Product> products, MatrixView x, WeightAccess* access,
                     Ops& ops) {
  bool same_x = false;
  for (const Product& product : products) {
    const MatMulWeights& weights = product.weights;
    for (size_t i = 0; i < weights.matrix.shards.size(); ++i) {
      const WeightShardView& shard = weights.matrix.shards[i];
      const bool is_streamed = shard.data == nullptr;
      ops.MatMul({.x = x,
                  .weight = is_streamed ? access->Acquire({weights.tensor, i}) : shard,
                  .bias = weights.bias,
                  .out = product.out,
                  .accumulate = product.accumulate,
                  .same_x = same_x});
      same_x = true;
      if (is_streamed) {
        access->Release();
      }
    }
  }
}

}  // namespace nightshift
