// ResidentWeights: the weights of a pack that stay in memory for as long as the engine lives, and the
// views of all of them.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/io/disk_queue.h"
#include "engine/memory/pool.h"
#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"
#include "engine/model/weights.h"
#include "kernels/base/worker_pool.h"
#include "kernels/dtype.h"

namespace nightshift {

class ResidentWeights {
 public:
  // Reads, verifies and expands the shards that `placement` keeps in memory, its resident_bytes of
  // the pool. Shards to be expanded pass through memory that is free again when this returns.
  // Errors: RESOURCE_EXHAUSTED (pool); as ShardReader; INVALID_ARGUMENT naming a tensor that the
  // model's configuration needs and the pack lacks.
  static absl::StatusOr<std::unique_ptr<ResidentWeights>> Load(const Pack& pack,
                                                               const WeightPlacement& placement,
                                                               ComputeType compute_type,
                                                               const DiskQueueOptions& disk,
                                                               Pool& pool, WorkerPool& workers);

  // Shards that are not in memory have no data.
  const ModelWeights& weights() const { return weights_; }

 private:
  class Loader;
  explicit ResidentWeights(Buffer buffer) : buffer_(std::move(buffer)) {}

  Buffer buffer_;
  std::deque<std::vector<WeightShardView>> shards_;  // stable addresses for the views
  ModelWeights weights_;
};

}  // namespace nightshift
