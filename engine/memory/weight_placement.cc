#include "engine/memory/weight_placement.h"

#include <algorithm>
#include <string>

#include "absl/strings/match.h"

#include "engine/io/disk_file.h"
#include "engine/model/weight_loader.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

// Tensors of which a sweep needs what its tokens hit: tables and experts.
bool IsReadOnDemand(const TensorEntry& tensor) {
  return tensor.name == "embed" || tensor.name == "positions" ||
         absl::StrContains(tensor.name, ".experts.");
}

// What every sweep needs and is small beside a layer: vectors, and the projections between the
// embedding's width and the model's, which the head asks for once a group of rows.
bool AlwaysResident(const TensorEntry& tensor) {
  return tensor.layout == TensorLayout::kVector || tensor.name == "project_in" ||
         tensor.name == "project_out";
}

int64_t TensorBytes(const TensorEntry& tensor, ComputeType compute_type) {
  int64_t bytes = 0;
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    bytes += ResidentShardBytes(tensor, i, compute_type);
  }
  return bytes;
}

// Marks shards in the order of a sweep, so that of the bytes seen so far at most `share` is marked
// and never a whole shard less: every layer has the same share.
class EvenMarker {
 public:
  explicit EvenMarker(double share) : share_(share) {}

  bool Mark(int64_t bytes) {
    seen_bytes_ += bytes;
    if (static_cast<double>(marked_bytes_ + bytes) > share_ * static_cast<double>(seen_bytes_)) {
      return false;
    }
    marked_bytes_ += bytes;
    return true;
  }
  int64_t marked_bytes() const { return marked_bytes_; }

 private:
  const double share_;
  int64_t seen_bytes_ = 0;
  int64_t marked_bytes_ = 0;
};

void CountStreamed(const PackManifest& manifest, ComputeType compute_type,
                   WeightPlacement& placement) {
  // A tied head reads the embedding's shards, last of all.
  std::vector<size_t> order;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    if (!IsReadOnDemand(manifest.tensors[i])) {
      order.push_back(i);
    }
  }
  for (size_t i = 0; i < manifest.tensors.size() && manifest.config.tied_head; ++i) {
    if (manifest.tensors[i].name == "embed") {
      order.push_back(i);
    }
  }
  for (const size_t i : order) {
    const TensorEntry& tensor = manifest.tensors[i];
    for (size_t shard = 0; shard < tensor.shards.size(); ++shard) {
      if (!placement.is_resident[i][shard]) {
        placement.streamed.push_back({i, shard});
        placement.streamed_bytes += tensor.shards[shard].bytes;
      }
    }
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    for (size_t shard = 0; shard < tensor.shards.size(); ++shard) {
      if (placement.is_resident[i][shard]) {
        continue;
      }
      placement.max_stored_bytes =
          std::max(placement.max_stored_bytes, tensor.shards[shard].bytes);
      if (LoadedDType(tensor.dtype, compute_type) != tensor.dtype) {
        placement.max_expanded_bytes =
            std::max(placement.max_expanded_bytes, LoadedShardBytes(tensor, shard, compute_type));
      }
    }
  }
}

}  // namespace

int64_t ResidentShardBytes(const TensorEntry& tensor, size_t shard_index,
                           ComputeType compute_type) {
  const int64_t bytes = tensor.layout == TensorLayout::kVector
                            ? tensor.shards[shard_index].bytes
                            : LoadedShardBytes(tensor, shard_index, compute_type);
  return RoundUp(bytes, kDiskAlignment);
}

WeightPlacement PlaceWeights(const PackManifest& manifest, ComputeType compute_type,
                             int64_t budget_bytes) {
  WeightPlacement placement;
  int64_t matrix_bytes = 0;
  const TensorEntry* tied = nullptr;
  for (const TensorEntry& tensor : manifest.tensors) {
    const bool stays = AlwaysResident(tensor);
    const int64_t bytes = TensorBytes(tensor, compute_type);
    placement.is_resident.emplace_back(tensor.shards.size(), stays);
    placement.resident_bytes += stays ? bytes : 0;
    matrix_bytes += stays ? 0 : bytes;
    if (manifest.config.tied_head && tensor.name == "embed") {
      tied = &tensor;
    }
  }
  int64_t rest_bytes = std::max<int64_t>(0, budget_bytes - placement.resident_bytes);
  if (tied != nullptr && TensorBytes(*tied, compute_type) <= rest_bytes) {
    const int64_t bytes = TensorBytes(*tied, compute_type);
    placement.is_resident[static_cast<size_t>(tied - manifest.tensors.data())].assign(
        tied->shards.size(), true);
    placement.resident_bytes += bytes;
    rest_bytes -= bytes;
    matrix_bytes -= bytes;
  } else {
    tied = nullptr;
  }
  const double share =
      matrix_bytes <= rest_bytes
          ? 1.0
          : static_cast<double>(rest_bytes) / static_cast<double>(matrix_bytes);
  EvenMarker marker(share);
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    if (AlwaysResident(tensor) || &tensor == tied) {
      continue;
    }
    for (size_t shard = 0; shard < tensor.shards.size(); ++shard) {
      placement.is_resident[i][shard] =
          marker.Mark(ResidentShardBytes(tensor, shard, compute_type));
    }
  }
  placement.resident_bytes += marker.marked_bytes();
  CountStreamed(manifest, compute_type, placement);
  return placement;
}

}  // namespace nightshift
