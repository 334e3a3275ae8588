#include "engine/policy/model_work.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

#include "engine/model/weight_loader.h"
#include "kernels/panel_layout.h"

namespace nightshift {
namespace {

constexpr double kFloatBytes = 4.0;  // of a number in a hidden row

double FlopsPerRow(const TensorEntry& tensor, const ShardEntry& shard) {
  return 2.0 * static_cast<double>(shard.outputs) * static_cast<double>(tensor.inputs);
}

double ElementsOf(const TensorEntry& tensor, const ShardEntry& shard) {
  return static_cast<double>(PanelElements(shard.outputs, tensor.inputs));
}

bool IsExpanded(const TensorEntry& tensor, ComputeType compute_type) {
  return LoadedDType(tensor.dtype, compute_type) != tensor.dtype;
}

// Bytes of hidden rows, read and written, of a row: before attention.
double InputRowBytes(const ModelConfig& config) {
  const double width = static_cast<double>(config.model_width);
  const double q = static_cast<double>(config.num_heads * config.head_width);
  const double kv = static_cast<double>(config.num_kv_heads * config.head_width);
  double numbers = config.pre_norm ? 2.0 * width : 0.0;
  numbers += config.qk_norm != QkNorm::kNone ? 2.0 * (q + kv) : 0.0;
  numbers += config.position == PositionKind::kRope ? 2.0 * (q + kv) : 0.0;
  numbers += 3.0 * kv;  // stored: read, and written in half the width
  return numbers * kFloatBytes;
}

// Behind attention; without the feed-forward where experts follow.
double OutputRowBytes(const ModelConfig& config, bool has_experts) {
  const double width = static_cast<double>(config.model_width);
  const double ffn = static_cast<double>(config.ffn_width);
  double numbers = 2.0 * width;  // a norm
  numbers += config.branch_norm ? 5.0 * width : 0.0;
  numbers += has_experts ? 0.0 : (config.gated_ffn ? 3.0 : 2.0) * ffn;
  return numbers * kFloatBytes;
}

// Where a tensor's matmul happens.
enum class Place : uint8_t { kElsewhere, kEmbedding, kInputs, kOutputs, kExperts, kHead };

struct TensorPlace {
  Place place = Place::kElsewhere;
  size_t layer = 0;
};

TensorPlace PlaceOf(const TensorEntry& tensor) {
  const std::vector<absl::string_view> name = absl::StrSplit(tensor.name, '.');
  if (tensor.layout != TensorLayout::kMatMul) {
    return {};
  }
  if (tensor.name == "embed") {
    return {Place::kEmbedding, 0};
  }
  if (tensor.name == "head") {
    return {Place::kHead, 0};
  }
  int64_t layer = 0;
  if (name.size() < 3 || name[0] != "layers" || !absl::SimpleAtoi(name[1], &layer)) {
    return {};
  }
  const Place place = name[2] == "experts"                                 ? Place::kExperts
                      : name[2] == "q" || name[2] == "k" || name[2] == "v" ? Place::kInputs
                                                                           : Place::kOutputs;
  return {place, static_cast<size_t>(layer)};
}

// Fills a ModelWork in the order in which a sweep uses shards.
class WorkList {
 public:
  WorkList(const PackManifest& manifest, const WeightPlacement& placement, ComputeType compute_type,
           size_t joined, int64_t max_joined_bytes)
      : manifest_(manifest),
        placement_(placement),
        compute_type_(compute_type),
        joined_(static_cast<double>(joined)),
        max_joined_bytes_(max_joined_bytes) {
    const ModelConfig& config = manifest.config;
    const size_t num_layers = static_cast<size_t>(config.num_layers);
    work_.layers.resize(num_layers);
    for (size_t i = 0; i < num_layers; ++i) {
      const bool has_experts = HasExperts(config, static_cast<int64_t>(i));
      work_.has_experts.push_back(has_experts);
      work_.layers[i].inputs.row_bytes = InputRowBytes(config);
      work_.layers[i].outputs.row_bytes = OutputRowBytes(config, has_experts);
    }
    const double width = static_cast<double>(config.model_width);
    work_.embedding_row_bytes = 2.0 * width * kFloatBytes;
    // Gathered, normalised, and the logits folded.
    work_.head_row_bytes =
        (4.0 * width + 2.0 * static_cast<double>(config.vocabulary)) * kFloatBytes;
    if (config.embedding_width != config.model_width) {
      work_.projection_flops_per_row = 2.0 * width * static_cast<double>(config.embedding_width);
    }
  }

  ModelWork Make() {
    FindTypes();
    const TensorEntry* tied = nullptr;
    size_t tied_index = 0;
    for (size_t i = 0; i < manifest_.tensors.size(); ++i) {
      const TensorEntry& tensor = manifest_.tensors[i];
      const TensorPlace place = PlaceOf(tensor);
      if (place.place == Place::kEmbedding) {
        AddEmbedding(tensor, i);
        if (manifest_.config.tied_head) {
          tied = &tensor;
          tied_index = i;
        }
      } else if (place.place == Place::kExperts) {
        AddExpert(tensor, i);
      } else if (place.place != Place::kElsewhere) {
        AddMatmul(tensor, i, place);
      }
    }
    if (tied != nullptr) {
      AddMatmul(*tied, tied_index, {Place::kHead, 0});
    }
    AverageExperts();
    return std::move(work_);
  }

 private:
  // Of the largest tensor of a layer.
  void FindTypes() {
    int64_t largest = 0;
    for (const TensorEntry& tensor : manifest_.tensors) {
      const int64_t elements = tensor.outputs * tensor.inputs;
      if (absl::StartsWith(tensor.name, "layers.") && elements > largest) {
        largest = elements;
        work_.stored = tensor.dtype;
        work_.loaded = LoadedDType(tensor.dtype, compute_type_);
      }
    }
  }

  PartWork& PartOf(TensorPlace place) {
    return place.place == Place::kHead     ? work_.head
           : place.place == Place::kInputs ? work_.layers[place.layer].inputs
                                           : work_.layers[place.layer].outputs;
  }

  void AddMatmul(const TensorEntry& tensor, size_t index, TensorPlace place) {
    PartWork& part = PartOf(place);
    const int64_t layer = place.place == Place::kHead ? manifest_.config.num_layers
                                                      : static_cast<int64_t>(place.layer);
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const ShardEntry& shard = tensor.shards[i];
      const Tier tier = placement_.tiers[index][i];
      if (tier == Tier::kDevice) {
        part.resident_flops_per_row += FlopsPerRow(tensor, shard);
        continue;
      }
      const StreamedShard streamed{.bytes = HostShardBytes(tensor, i),
                                   .tier = tier,
                                   .layer = layer,
                                   .follows_attention = place.place != Place::kInputs};
      StreamedWork& piece = Joined(streamed, part);
      piece.shards += 1.0;
      piece.resident_flops_per_row += std::exchange(part.resident_flops_per_row, 0.0);
      piece.streamed.flops_per_row += FlopsPerRow(tensor, shard);
      piece.streamed.unpacked_elements +=
          IsExpanded(tensor, compute_type_) ? ElementsOf(tensor, shard) : 0.0;
      piece.streamed.disk_bytes += tier == Tier::kDisk ? static_cast<double>(shard.bytes) : 0.0;
    }
  }

  // The piece that the shard is part of: the last one of its tier, if that is the last or last but
  // one of the part and has room, for shards of two tiers take turns; else a new one.
  StreamedWork& Joined(const StreamedShard& shard, PartWork& part) {
    for (size_t back = 1; back <= std::min<size_t>(2, part.pieces.size()); ++back) {
      StreamedShard& last = work_.shards[work_.shards.size() - back];
      StreamedWork& piece = part.pieces[part.pieces.size() - back];
      if (last.tier == shard.tier && piece.shards < joined_ &&
          last.bytes + shard.bytes <= max_joined_bytes_) {
        last.bytes += shard.bytes;
        return piece;
      }
    }
    work_.shards.push_back(shard);
    return part.pieces.emplace_back();
  }

  void AddEmbedding(const TensorEntry& tensor, size_t index) {
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const Tier tier = placement_.tiers[index][i];
      if (tier != Tier::kDevice) {
        work_.embedding_shards += 1.0;
        (tier == Tier::kDisk ? work_.embedding_disk_bytes : work_.embedding_host_bytes) +=
            static_cast<double>(tensor.shards[i].bytes);
      }
    }
  }

  // Sums over all experts.
  void AddExpert(const TensorEntry& tensor, size_t index) {
    ExpertWork& experts = work_.experts;
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      const ShardEntry& shard = tensor.shards[i];
      const Tier tier = placement_.tiers[index][i];
      experts.flops_per_row += FlopsPerRow(tensor, shard);
      experts.shard_bytes = std::max(experts.shard_bytes, static_cast<double>(shard.bytes));
      if (tier != Tier::kDevice) {
        (tier == Tier::kDisk ? experts.disk_bytes : experts.host_bytes) +=
            static_cast<double>(shard.bytes);
        experts.unpacked_elements +=
            IsExpanded(tensor, compute_type_) ? ElementsOf(tensor, shard) : 0.0;
      }
    }
  }

  void AverageExperts() {
    if (!manifest_.config.experts) {
      return;
    }
    const ExpertConfig& config = *manifest_.config.experts;
    const double all = static_cast<double>(config.count * config.num_layers_with_experts());
    ExpertWork& experts = work_.experts;
    experts.count = config.count;
    experts.per_token = config.per_token;
    for (double* sum : {&experts.flops_per_row, &experts.disk_bytes, &experts.host_bytes,
                        &experts.unpacked_elements}) {
      *sum /= std::max(all, 1.0);
    }
    // Gathered, gated, added.
    experts.row_bytes = (4.0 * static_cast<double>(manifest_.config.model_width) +
                         3.0 * static_cast<double>(config.ffn_width)) *
                        kFloatBytes;
  }

  const PackManifest& manifest_;
  const WeightPlacement& placement_;
  const ComputeType compute_type_;
  const double joined_;  // most shards in one
  const int64_t max_joined_bytes_;
  ModelWork work_;
};

}  // namespace

ModelWork WorkOf(const PackManifest& manifest, const WeightPlacement& placement,
                 ComputeType compute_type, size_t max_streamed, int64_t max_joined_bytes) {
  const size_t joined = 1 + (placement.streamed.size() - 1) / std::max<size_t>(max_streamed, 1);
  return WorkList(manifest, placement, compute_type, placement.streamed.empty() ? 1 : joined,
                  max_joined_bytes)
      .Make();
}

}  // namespace nightshift
