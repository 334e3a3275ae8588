// One row of a weight matrix as floats: what an embedding table is read by.
#pragma once

#include <cstdint>

#include "kernels/tensor_view.h"

namespace nightshift::cpu {

// out[k] (+)= weight [id, k] of the table [V, E], of any type that ops read; nothing where no shard
// has the row. `rounds`: values of integer groups to bf16 first.
struct GatherRowArgs {
  const WeightView& table;
  int64_t id = 0;
  bool rounds = false;
  bool accumulate = false;
  float* out = nullptr;
};

void GatherRow(const GatherRowArgs& args);

}  // namespace nightshift::cpu
