// MemoryPlan: how the budgets of the tiers are shared by weights, activations and KV pages. Pure.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/execute/executor.h"
#include "engine/memory/kv_cache.h"
#include "engine/memory/weight_placement.h"
#include "engine/memory/weight_stream.h"
#include "engine/model/pack.h"

namespace nightshift {

struct MemoryPlan {
  WeightPlacement weights;
  // Of weights that are not on the device; 0 if there are none.
  int64_t host_ring_bytes = 0;
  int64_t device_ring_bytes = 0;
  KvPages kv_pages;
  ExecutorLimits executor;
  // What the engine takes from each tier, all of it at Create. With unified memory the host's is
  // all and the device's 0; weights that are read from the pack are not among the disk's.
  int64_t device_bytes = 0;
  int64_t host_bytes = 0;
  int64_t disk_bytes = 0;

  WeightStreamOptions stream_options(const EngineOptions& options) const;
};

// Most positions that a sequence grows by in one sweep.
int64_t LongestSpan(const EngineOptions& options);

// What an engine takes of each tier beside weights, their rings and pages: activations, scratch,
// staging of `pages`. With unified memory the host's is part of the device's.
struct WorkingBytes {
  int64_t device = 0;
  int64_t host = 0;
  int64_t disk = 0;
};
WorkingBytes WorkingBytesOf(const EngineOptions& options, const PackManifest& manifest,
                            bool streams_weights, const KvPages& pages);

// Keeps all weights on the device where they fit beside KV pages for one request. Else weights are
// streamed, and what activations and the rings leave is halved between KV pages (a larger block
// shares one reading of the weights) and weights (less is read), unless the options say; what the
// device does not keep lies on the host as far as it goes. Shares that are given are kept to.
// Errors: RESOURCE_EXHAUSTED with the tier, what each part takes and the least budget that would
// do.
// `name` is the model's in messages.
absl::StatusOr<MemoryPlan> PlanMemory(const EngineOptions& options, const PackManifest& manifest,
                                      const std::string& name);

}  // namespace nightshift
