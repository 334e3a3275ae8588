// ResidentWeights: all weights of a pack in memory, for as long as the engine lives.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/memory/pool.h"
#include "engine/model/pack.h"
#include "engine/model/weights.h"
#include "kernels/dtype.h"

namespace nightshift {

class ResidentWeights {
 public:
  // Bytes that Load takes from the pool.
  static int64_t Bytes(const Pack& pack, ComputeType compute_type);

  // Reads, verifies and expands every tensor of the pack.
  // Errors: RESOURCE_EXHAUSTED (pool); DATA_LOSS (checksum, with tensor, shard and offset);
  // INVALID_ARGUMENT naming a tensor that the model's configuration needs and the pack lacks.
  static absl::StatusOr<std::unique_ptr<ResidentWeights>> Load(const Pack& pack,
                                                               ComputeType compute_type,
                                                               Pool& pool);

  const ModelWeights& weights() const { return weights_; }

 private:
  class Loader;
  explicit ResidentWeights(Buffer buffer) : buffer_(std::move(buffer)) {}

  Buffer buffer_;
  std::deque<std::vector<WeightShardView>> shards_;  // stable addresses for the views
  ModelWeights weights_;
};

}  // namespace nightshift
