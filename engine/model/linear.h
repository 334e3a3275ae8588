// MultiplyInOrder: a matrix of the forward pass, its shards in memory or coming in a sweep's order.
#pragma once

#include "engine/model/weights.h"
#include "kernels/ops.h"

namespace nightshift {

// out [T, N] (+)= x [T, K] times the weights, plus their bias. Shards without data are acquired from
// `access` one after the other; it may be null when all have data.
void MultiplyInOrder(const MatMulWeights& weights, MatrixView x, bool accumulate, MatrixView out,
                     WeightAccess* access, Ops& ops);

}  // namespace nightshift
