// MemoryPlan: how one memory budget is shared by weights, activations and KV pages. Pure.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/execute/executor.h"
#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"

namespace nightshift {

struct MemoryPlan {
  WeightPlacement weights;
  int64_t ring_bytes = 0;  // of streamed weights; 0 if none are
  int64_t kv_pages = 0;
  ExecutorLimits executor;
};

// Most positions that a sequence grows by in one sweep.
int64_t LongestSpan(const EngineOptions& options);

// Keeps all weights in memory where they fit beside KV pages for one request. Else weights are
// streamed, and what activations and the ring leave is halved between KV pages (a larger block
// shares one reading of the weights) and weights (less is read), unless weight_budget_bytes says.
// Errors: RESOURCE_EXHAUSTED with what each part takes and the least budget that would do.
absl::StatusOr<MemoryPlan> PlanMemory(const EngineOptions& options, const Pack& pack);

}  // namespace nightshift
