// ModelWork: what one sweep over a model asks of a machine for each row, cut as the sweep's steps
// are. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "engine/memory/weight_placement.h"
#include "engine/model/pack.h"
#include "engine/schedule/sweep_steps.h"
#include "kernels/dtype.h"

namespace nightshift {

// Matmuls by some shards.
struct MatmulWork {
  double flops_per_row = 0.0;
  // Of shards that are brought in another form than ops read, which is made at each use.
  double unpacked_elements = 0.0;
  double disk_bytes = 0.0;  // of those that come from disk
};

// A streamed shard, or neighbours of one layer, part and tier as one, with what lies on the device
// and is multiplied by between the streamed one before it and this one.
struct StreamedWork {
  double shards = 0.0;
  double resident_flops_per_row = 0.0;
  MatmulWork streamed;
};

// The matmuls before or behind a layer's attention.
struct PartWork {
  std::vector<StreamedWork> pieces;
  double resident_flops_per_row = 0.0;  // behind the last piece
  double row_bytes = 0.0;               // of work between matmuls, a row
};

struct LayerWork {
  PartWork inputs;
  PartWork outputs;
};

// Of one layer's experts.
struct ExpertWork {
  int64_t count = 0;  // 0: the model has none
  int64_t per_token = 0;
  double flops_per_row = 0.0;  // of one expert
  double row_bytes = 0.0;      // of one expert, a row
  // Of one expert, as stored.
  double disk_bytes = 0.0;
  double host_bytes = 0.0;
  double unpacked_elements = 0.0;
  double shard_bytes = 0.0;  // of one shard, the first of which is waited for
};

struct ModelWork {
  DType loaded = DType::kBF16;        // as ops read most weights
  DType stored = DType::kBF16;        // as they are stored
  std::vector<StreamedShard> shards;  // of a stream
  std::vector<LayerWork> layers;
  std::vector<bool> has_experts;  // by layer
  PartWork head;
  ExpertWork experts;  // the mean of the layers that have some
  // Of the embedding: shards that are not on the device, with all their bytes; bytes that a row of
  // it reads and writes.
  double embedding_shards = 0.0;
  double embedding_disk_bytes = 0.0;
  double embedding_host_bytes = 0.0;
  double embedding_row_bytes = 0.0;
  double projection_flops_per_row = 0.0;  // between the embedding's width and the model's
  double head_row_bytes = 0.0;            // of a sampled row
};

// Of weights placed so. Of more than `max_streamed` streamed shards neighbours are joined, as long
// as each stays below `max_joined_bytes`.
ModelWork WorkOf(const PackManifest& manifest, const WeightPlacement& placement,
                 ComputeType compute_type, size_t max_streamed, int64_t max_joined_bytes);

}  // namespace nightshift
