#include "engine/memory/weight_placement.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "engine/io/disk_file.h"
#include "engine/model/tensor_names.h"
#include "engine/model/weight_loader.h"
#include "kernels/base/check.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

// Tensors of which a sweep needs what its tokens hit: tables and experts.
bool IsReadOnDemand(const TensorEntry& tensor) {
  return IsTable(tensor.name) || absl::StrContains(tensor.name, ".experts.");
}

// What every sweep needs and is small beside a layer: vectors, routers, which are asked for piece
// by piece of the rows, and the projections between the embedding's width and the model's, which
// the head asks for once a group of rows.
bool AlwaysOnDevice(const TensorEntry& tensor) {
  return tensor.layout == TensorLayout::kVector || tensor.name == "project_in" ||
         tensor.name == "project_out" || absl::EndsWith(tensor.name, ".router.weight");
}

int64_t TensorBytes(const TensorEntry& tensor, ComputeType compute_type) {
  int64_t bytes = 0;
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    bytes += DeviceShardBytes(tensor, i, compute_type);
  }
  return bytes;
}

int64_t StoredBytes(const TensorEntry& tensor) {
  int64_t bytes = 0;
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    bytes += HostShardBytes(tensor, i);
  }
  return bytes;
}

double ShareOf(int64_t part, int64_t whole) {
  return part >= whole
             ? 1.0
             : static_cast<double>(std::max<int64_t>(part, 0)) / static_cast<double>(whole);
}

// Whether so many tokens, drawn at random, hit nine in ten of the table's shards.
bool IsHitAllOver(const TensorEntry& table, int64_t tokens) {
  const double missed = 1.0 - 1.0 / static_cast<double>(table.shards.size());
  return std::pow(missed, static_cast<double>(tokens)) <= 0.1;
}

// Whether the whole embedding stays on the device, of which `rest_bytes` are free.
bool KeepsTable(const TensorEntry& table, bool is_head, int64_t sweep_tokens, int64_t rest_bytes,
                ComputeType compute_type) {
  return TensorBytes(table, compute_type) <= rest_bytes &&
         (is_head || IsHitAllOver(table, sweep_tokens));
}

// Marks shards in the order of a sweep, so that of the bytes seen so far at most `share` is marked
// and never a whole shard less: every layer has the same share.
class EvenMarker {
 public:
  explicit EvenMarker(double share) : share_(share) {}

  // Whether the shard is marked, if it `may` be.
  bool Mark(int64_t bytes, bool may) {
    seen_bytes_ += bytes;
    if (!may ||
        static_cast<double>(marked_bytes_ + bytes) > share_ * static_cast<double>(seen_bytes_)) {
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
      const Tier tier = placement.tiers[i][shard];
      if (tier != Tier::kDevice) {
        placement.streamed.push_back({i, shard});
        (tier == Tier::kDisk ? placement.streamed_disk_bytes : placement.streamed_host_bytes) +=
            tensor.shards[shard].bytes;
      }
    }
  }
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    for (size_t shard = 0; shard < tensor.shards.size(); ++shard) {
      if (placement.tiers[i][shard] == Tier::kDevice) {
        continue;
      }
      placement.max_stored_bytes = std::max(placement.max_stored_bytes, tensor.shards[shard].bytes);
      if (LoadedDType(tensor.dtype, compute_type) != tensor.dtype) {
        placement.max_expanded_bytes =
            std::max(placement.max_expanded_bytes, LoadedShardBytes(tensor, shard, compute_type));
      }
    }
  }
}

}  // namespace

int64_t DeviceShardBytes(const TensorEntry& tensor, size_t shard_index, ComputeType compute_type) {
  const int64_t bytes = tensor.layout == TensorLayout::kVector
                            ? tensor.shards[shard_index].bytes
                            : LoadedShardBytes(tensor, shard_index, compute_type);
  return RoundUp(bytes, kDiskAlignment);
}

int64_t HostShardBytes(const TensorEntry& tensor, size_t shard_index) {
  return RoundUp(tensor.shards[shard_index].bytes, kDiskAlignment);
}

WeightPlacement PlaceWeights(const PackManifest& manifest, ComputeType compute_type,
                             const WeightBudget& budget) {
  WeightPlacement placement;
  int64_t matrix_bytes = 0;
  int64_t stored_bytes = 0;
  const TensorEntry* table = nullptr;
  for (const TensorEntry& tensor : manifest.tensors) {
    const bool stays = AlwaysOnDevice(tensor);
    const int64_t bytes = TensorBytes(tensor, compute_type);
    placement.tiers.emplace_back(tensor.shards.size(), stays ? Tier::kDevice : Tier::kDisk);
    placement.device_bytes += stays ? bytes : 0;
    matrix_bytes += stays ? 0 : bytes;
    stored_bytes += stays ? 0 : StoredBytes(tensor);
    if (tensor.name == "embed") {
      table = &tensor;
    }
  }
  int64_t rest_bytes = budget.device_bytes - placement.device_bytes;
  if (table != nullptr && KeepsTable(*table, manifest.config.tied_head, budget.sweep_tokens,
                                     rest_bytes, compute_type)) {
    const int64_t bytes = TensorBytes(*table, compute_type);
    placement.tiers[static_cast<size_t>(table - manifest.tensors.data())].assign(
        table->shards.size(), Tier::kDevice);
    placement.device_bytes += bytes;
    rest_bytes -= bytes;
    matrix_bytes -= bytes;
    stored_bytes -= StoredBytes(*table);
  } else {
    table = nullptr;
  }
  EvenMarker device(ShareOf(rest_bytes, matrix_bytes));
  EvenMarker host(ShareOf(budget.host_bytes, stored_bytes));
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    const TensorEntry& tensor = manifest.tensors[i];
    if (AlwaysOnDevice(tensor) || &tensor == table) {
      continue;
    }
    for (size_t shard = 0; shard < tensor.shards.size(); ++shard) {
      const bool on_device = device.Mark(DeviceShardBytes(tensor, shard, compute_type), true);
      const bool on_host = host.Mark(HostShardBytes(tensor, shard), !on_device);
      placement.tiers[i][shard] = on_device ? Tier::kDevice : on_host ? Tier::kHost : Tier::kDisk;
    }
  }
  placement.device_bytes += device.marked_bytes();
  placement.host_bytes = host.marked_bytes();
  CountStreamed(manifest, compute_type, placement);
  return placement;
}

std::vector<StreamedShard> StreamedShards(const PackManifest& manifest,
                                          const WeightPlacement& placement) {
  std::vector<StreamedShard> shards;
  for (const ShardIndex shard : placement.streamed) {
    const TensorEntry& tensor = manifest.tensors[shard.tensor];
    StreamedShard& streamed = shards.emplace_back();
    streamed.bytes = HostShardBytes(tensor, shard.shard);
    streamed.tier = placement.TierOf(shard);
    streamed.layer = manifest.config.num_layers;  // the head, also as the tied embedding
    const std::vector<absl::string_view> name = absl::StrSplit(tensor.name, '.');
    if (name.size() > 2 && name[0] == "layers") {
      CHECK(absl::SimpleAtoi(name[1], &streamed.layer));
      streamed.follows_attention = name[2] != "q" && name[2] != "k" && name[2] != "v";
    }
  }
  return shards;
}

}  // namespace nightshift
