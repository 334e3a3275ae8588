// The weights of a model as the forward pass reads them: views, owned elsewhere (engine/memory).
// A weight that a family does not have is empty: no shards, or null.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kernels/tensor_view.h"

namespace nightshift {

// A shard of a pack: indices in manifest.tensors and in its shards.
struct ShardIndex {
  size_t tensor = 0;
  size_t shard = 0;

  bool operator==(const ShardIndex&) const = default;
};

// A matrix [N, K] with an optional bias [N]. Shards without data are not in memory: WeightAccess
// brings them.
struct MatMulWeights {
  WeightView matrix;
  size_t tensor = 0;  // index in the pack's manifest
  const float* bias = nullptr;

  bool exists() const { return !matrix.shards.empty(); }
};

// One expert of a layer.
struct ExpertWeights {
  MatMulWeights gate;
  MatMulWeights up;
  MatMulWeights down;
};

// What the rows of a sweep need of a layer's experts.
struct ExpertDemand {
  std::span<const ExpertWeights> experts;  // all of the layer
  std::span<const size_t> hit;             // those that some row chose, ascending
  std::span<const ShardIndex> streamed;    // of these, what is not in memory, in order of use
};

// Brings shards that are not in memory while they are used. Implemented above this package, by
// engine/memory/weight_stream.
class WeightAccess {
 public:
  virtual ~WeightAccess() = default;
  // The next shard that is not in memory; the order of the pack, once in every sweep. Valid until
  // Release. `expected` is what the caller believes it to be.
  virtual WeightShardView Acquire(ShardIndex expected) = 0;
  virtual void Release() = 0;
  // Shards that are not next (tables of which rows are needed, a second look at the head): hands
  // them to `use` one by one, in order.
  virtual void ReadAside(std::span<const ShardIndex> shards,
                         const std::function<void(const WeightShardView&)>& use) = 0;
  // Begins to read demand.streamed, of which each shard is then acquired and released in order,
  // before anything else is begun. Meanwhile shards that are hit may come into memory for good and
  // others, of experts that are not hit, go: their data changes.
  virtual void BeginExperts(const ExpertDemand& demand) = 0;
  virtual WeightShardView AcquireOfExpert(ShardIndex expected) = 0;
  virtual void ReleaseOfExpert() = 0;
};

// A norm's vectors [E]; bias for LayerNorm only.
struct NormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;

  bool exists() const { return weight != nullptr; }
};

// Names as in tensor_names.h. A layer has gate, up and down, or a router and experts.
struct LayerWeights {
  NormWeights attention_norm;
  MatMulWeights q;
  MatMulWeights k;
  MatMulWeights v;
  const float* q_norm = nullptr;  // [D] or [H*D]
  const float* k_norm = nullptr;  // [D] or [G*D]
  MatMulWeights o;
  NormWeights attention_branch_norm;
  NormWeights ffn_norm;
  MatMulWeights gate;
  MatMulWeights up;
  MatMulWeights down;
  NormWeights ffn_branch_norm;
  MatMulWeights router;
  std::vector<ExpertWeights> experts;
};

struct ModelWeights {
  MatMulWeights embed;
  MatMulWeights positions;
  MatMulWeights project_in;
  std::vector<LayerWeights> layers;
  NormWeights final_norm;
  MatMulWeights project_out;
  MatMulWeights head;  // the embedding when tied
};

}  // namespace nightshift
