// MultiplyInOrder: matrices of the forward pass, their shards in memory or coming in a sweep's
// order.
#pragma once

#include <span>

#include "engine/model/weights.h"
#include "kernels/ops.h"

namespace nightshift {

// out [T, N] (+)= x [T, K] times the weights, plus their bias.
struct Product {
  const MatMulWeights& weights;
  MatrixView out;
  bool accumulate = false;
};

// Products of the same x, one after the other; none of them writes to x. Shards without data are
// acquired from `access` in order; it may be null when all have data.
void MultiplyInOrder(std::span<const Product> products, MatrixView x, WeightAccess* access,
                     Ops& ops);

}  // namespace nightshift
