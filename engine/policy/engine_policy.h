// What a solved choice means for an engine: the one place where a policy becomes options. Pure.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "engine/policy/cost_model.h"
#include "engine/policy/placement_program.h"
#include "engine/policy/workload_profile.h"

namespace nightshift {

// What follows from a choice alone.
struct BlockSizes {
  int64_t max_block_requests = 1;
  int64_t max_sweep_tokens = 1;
  int64_t max_batch_tokens = 1;
  int64_t prompt_chunk_tokens = 0;
  WeightBuffering buffering = WeightBuffering::kRing;
};

// A sweep has room for a token of each request of the block and for as many prompt tokens as keep
// the block full: a request that ends leaves its place to the prompt of the next one. A block that
// is one batch streams weights through a ring, one of several batches through two layers.
BlockSizes SizesOf(const BlockChoice& choice, const WorkloadProfile& workload);

// Bytes that the engine may use.
struct TierBudgets {
  int64_t device = 0;  // 0: one memory, the host's
  int64_t host = 0;
  int64_t disk = 0;  // for keys, values and activations
};

// `base` gives what no policy decides: pack, compute type, threads, disk backend, spill folder,
// checks, caps of the discrete mode; `layer_bytes` are those of a layer's weights as stored, of
// which the ring takes as much as an eighth of the memory allows.
EngineOptions OptionsFor(const EngineOptions& base, const BlockChoice& choice, const Shares& shares,
                         const TierBudgets& budgets, const WorkloadProfile& workload,
                         int64_t layer_bytes);

}  // namespace nightshift
