#include "engine/memory/resident_weights.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/memory/shard_reader.h"
#include "engine/model/tensor_names.h"
#include "engine/model/weight_loader.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Shards on their way together while loading: 16 MiB keep an NVMe disk at its sequential rate.
constexpr size_t kLoadWindow = 4;

absl::Status CheckShape(const TensorEntry& tensor, int64_t outputs, int64_t inputs) {
  if (tensor.outputs == outputs && tensor.inputs == inputs) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "load tensor ", tensor.name, ": its shape is [", tensor.outputs, ", ", tensor.inputs,
      "], the model's configuration asks [", outputs, ", ", inputs, "]"));
}

absl::Status Missing(const Pack& pack, const std::string& name) {
  return absl::InvalidArgumentError(
      absl::StrCat("load tensor ", name, ": pack ", pack.path(), " does not have it"));
}

}  // namespace

// Fills one ResidentWeights from a pack: first the views of everything and a place for each shard,
// then the bytes, in the order in which they lie on disk.
class ResidentWeights::Loader {
 public:
  Loader(const Pack& pack, const WeightPlacement& placement, ComputeType compute_type,
         ResidentWeights& target)
      : pack_(pack), placement_(placement), compute_type_(compute_type), target_(target) {}

  absl::Status LoadModel();
  absl::Status ReadShards(const DiskQueueOptions& disk, Pool& device_pool, Pool& host_pool,
                          Device& device);

 private:
  absl::Status LoadLayer(int64_t layer, LayerWeights& target);
  absl::Status LoadExperts(int64_t layer, LayerWeights& target);
  absl::Status LoadNorm(const std::string& name, NormWeights& target);
  absl::Status LoadLinear(const std::string& name, int64_t outputs, int64_t inputs,
                          MatMulWeights& target);
  absl::Status LoadMatrix(const std::string& name, int64_t outputs, int64_t inputs,
                          MatMulWeights& target);
  // `target` stays null when the pack has no such vector and it is not required.
  absl::Status LoadVectorInto(const std::string& name, int64_t size, bool required,
                              const float*& target);
  // The place of a shard on the device, to be read later; null for one that lies elsewhere.
  std::byte* Place(ShardIndex shard);
  void PlaceOnHost(ShardIndex shard);
  // Brings shards that cannot be read into their places through memory of the host and, where they
  // are expanded on a device with memory of its own, one place there.
  absl::Status ReadThroughHost(ShardReader& reader, std::span<const ShardTarget> places,
                               Pool& device_pool, Pool& host_pool, Device& device);
  // A shard of the form that ops read, to its place.
  absl::Status UploadShard(ShardIndex shard, std::span<const std::byte> bytes,
                           std::span<std::byte> place, const ShardReader& reader, Device& device);
  bool IsExpanded(ShardIndex shard) const;
  size_t IndexOf(const TensorEntry& tensor) const {
    return static_cast<size_t>(&tensor - pack_.manifest().tensors.data());
  }

  const Pack& pack_;
  const WeightPlacement& placement_;
  ComputeType compute_type_;
  ResidentWeights& target_;
  int64_t device_used_bytes_ = 0;
  int64_t host_used_bytes_ = 0;
  std::vector<ShardTarget> device_places_;
  std::vector<ShardTarget> host_places_;
};

absl::StatusOr<std::unique_ptr<ResidentWeights>> ResidentWeights::Load(
    const Pack& pack, const WeightPlacement& placement, ComputeType compute_type,
    const DiskQueueOptions& disk, Pool& device_pool, Pool& host_pool, Device& device) {
  std::unique_ptr<ResidentWeights> resident(new ResidentWeights());
  ASSIGN_OR_RETURN(resident->device_, device_pool.Reserve(placement.device_bytes, "weights"));
  if (placement.host_bytes > 0) {
    ASSIGN_OR_RETURN(resident->host_,
                     host_pool.Reserve(placement.host_bytes, "weights beside the device"));
  }
  resident->by_tensor_.resize(pack.manifest().tensors.size(), nullptr);
  Loader loader(pack, placement, compute_type, *resident);
  RETURN_IF_ERROR(loader.LoadModel());
  RETURN_IF_ERROR(loader.ReadShards(disk, device_pool, host_pool, device));
  return resident;
}

std::span<const std::byte> ResidentWeights::FindOnHost(ShardIndex shard) const {
  const auto found = host_shards_.find({shard.tensor, shard.shard});
  return found == host_shards_.end() ? std::span<const std::byte>() : found->second;
}

std::byte* ResidentWeights::Exchange(ShardIndex in, ShardIndex out) {
  WeightShardView& source = view(out);
  WeightShardView& target = view(in);
  CHECK(source.data != nullptr && target.data == nullptr);
  CHECK(source.dtype == target.dtype && source.outputs == target.outputs &&
        source.inputs == target.inputs);
  target.data = std::exchange(source.data, nullptr);
  return device_.bytes().data() + (target.data - device_.bytes().data());
}

absl::Status ResidentWeights::Loader::LoadModel() {
  const ModelConfig& config = pack_.manifest().config;
  ModelWeights& weights = target_.weights_;
  const int64_t width = config.model_width;
  const int64_t embedding_width = config.embedding_width;
  RETURN_IF_ERROR(LoadMatrix("embed", config.vocabulary, embedding_width, weights.embed));
  if (config.position == PositionKind::kLearned) {
    RETURN_IF_ERROR(LoadMatrix("positions", config.context_tokens + config.learned_position_offset,
                               width, weights.positions));
  }
  if (embedding_width != width) {
    RETURN_IF_ERROR(LoadMatrix("project_in", width, embedding_width, weights.project_in));
    RETURN_IF_ERROR(LoadMatrix("project_out", embedding_width, width, weights.project_out));
  }
  weights.layers.resize(static_cast<size_t>(config.num_layers));
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    RETURN_IF_ERROR(LoadLayer(layer, weights.layers[static_cast<size_t>(layer)]));
  }
  if (config.final_norm) {
    RETURN_IF_ERROR(LoadNorm("final_norm", weights.final_norm));
  }
  if (config.tied_head) {
    weights.head = weights.embed;
    return absl::OkStatus();
  }
  return LoadMatrix("head", config.vocabulary, embedding_width, weights.head);
}

absl::Status ResidentWeights::Loader::LoadLayer(int64_t layer, LayerWeights& target) {
  const ModelConfig& config = pack_.manifest().config;
  const int64_t width = config.model_width;
  const int64_t q_width = config.num_heads * config.head_width;
  const int64_t kv_width = config.num_kv_heads * config.head_width;
  const auto name = [layer](const char* tensor) { return LayerTensor(layer, tensor); };
  const NormPlaces norms = NormPlacesOf(config);
  if (norms.attention) {
    RETURN_IF_ERROR(LoadNorm(name("attention_norm"), target.attention_norm));
  }
  RETURN_IF_ERROR(LoadLinear(name("q"), q_width, width, target.q));
  RETURN_IF_ERROR(LoadLinear(name("k"), kv_width, width, target.k));
  RETURN_IF_ERROR(LoadLinear(name("v"), kv_width, width, target.v));
  if (config.qk_norm != QkNorm::kNone) {
    const bool head = config.qk_norm == QkNorm::kHead;
    RETURN_IF_ERROR(LoadVectorInto(name("q_norm.weight"), head ? config.head_width : q_width, true,
                                   target.q_norm));
    RETURN_IF_ERROR(LoadVectorInto(name("k_norm.weight"), head ? config.head_width : kv_width, true,
                                   target.k_norm));
  }
  RETURN_IF_ERROR(LoadLinear(name("o"), width, q_width, target.o));
  if (norms.branches) {
    RETURN_IF_ERROR(LoadNorm(name("attention_branch_norm"), target.attention_branch_norm));
    RETURN_IF_ERROR(LoadNorm(name("ffn_branch_norm"), target.ffn_branch_norm));
  }
  if (norms.ffn) {
    RETURN_IF_ERROR(LoadNorm(name("ffn_norm"), target.ffn_norm));
  }
  if (HasExperts(config, layer)) {
    return LoadExperts(layer, target);
  }
  if (config.gated_ffn) {
    RETURN_IF_ERROR(LoadLinear(name("gate"), config.ffn_width, width, target.gate));
  }
  RETURN_IF_ERROR(LoadLinear(name("up"), config.ffn_width, width, target.up));
  return LoadLinear(name("down"), width, config.ffn_width, target.down);
}

absl::Status ResidentWeights::Loader::LoadExperts(int64_t layer, LayerWeights& target) {
  const int64_t width = pack_.manifest().config.model_width;
  const ExpertConfig& experts = *pack_.manifest().config.experts;
  RETURN_IF_ERROR(
      LoadMatrix(LayerTensor(layer, "router.weight"), experts.count, width, target.router));
  target.experts.resize(static_cast<size_t>(experts.count));
  for (int64_t i = 0; i < experts.count; ++i) {
    ExpertWeights& expert = target.experts[static_cast<size_t>(i)];
    const auto name = [layer, i](const char* tensor) { return ExpertTensor(layer, i, tensor); };
    RETURN_IF_ERROR(LoadMatrix(name("gate.weight"), experts.ffn_width, width, expert.gate));
    RETURN_IF_ERROR(LoadMatrix(name("up.weight"), experts.ffn_width, width, expert.up));
    RETURN_IF_ERROR(LoadMatrix(name("down.weight"), width, experts.ffn_width, expert.down));
  }
  return absl::OkStatus();
}

absl::Status ResidentWeights::Loader::LoadNorm(const std::string& name, NormWeights& target) {
  const ModelConfig& config = pack_.manifest().config;
  RETURN_IF_ERROR(LoadVectorInto(name + ".weight", config.model_width, true, target.weight));
  if (config.norm == NormKind::kLayer) {
    RETURN_IF_ERROR(LoadVectorInto(name + ".bias", config.model_width, true, target.bias));
  }
  return absl::OkStatus();
}

absl::Status ResidentWeights::Loader::LoadLinear(const std::string& name, int64_t outputs,
                                                 int64_t inputs, MatMulWeights& target) {
  RETURN_IF_ERROR(LoadMatrix(name + ".weight", outputs, inputs, target));
  return LoadVectorInto(name + ".bias", outputs, false, target.bias);
}

absl::Status ResidentWeights::Loader::LoadMatrix(const std::string& name, int64_t outputs,
                                                 int64_t inputs, MatMulWeights& target) {
  const TensorEntry* tensor = pack_.Find(name);
  if (tensor == nullptr || tensor->layout != TensorLayout::kMatMul) {
    return Missing(pack_, name);
  }
  RETURN_IF_ERROR(CheckShape(*tensor, outputs, inputs));
  target.tensor = IndexOf(*tensor);
  std::vector<WeightShardView>& shards = target_.shards_.emplace_back();
  target_.by_tensor_[target.tensor] = &shards;
  for (size_t i = 0; i < tensor->shards.size(); ++i) {
    shards.push_back(LoadedShardView(*tensor, i, compute_type_, Place({target.tensor, i})));
  }
  target.matrix = {outputs, inputs, shards};
  return absl::OkStatus();
}

absl::Status ResidentWeights::Loader::LoadVectorInto(const std::string& name, int64_t size,
                                                     bool required, const float*& target) {
  const TensorEntry* tensor = pack_.Find(name);
  if (tensor == nullptr && !required) {
    return absl::OkStatus();
  }
  if (tensor == nullptr || tensor->layout != TensorLayout::kVector) {
    return Missing(pack_, name);
  }
  RETURN_IF_ERROR(CheckShape(*tensor, size, 1));
  if (tensor->shards.size() != 1) {
    return absl::InvalidArgumentError(absl::StrCat("load tensor ", name, ": a vector of ",
                                                   tensor->shards.size(), " shards, must be 1"));
  }
  target = reinterpret_cast<const float*>(Place({IndexOf(*tensor), 0}));
  return absl::OkStatus();
}

std::byte* ResidentWeights::Loader::Place(ShardIndex shard) {
  const Tier tier = placement_.TierOf(shard);
  if (tier == Tier::kHost) {
    PlaceOnHost(shard);
  }
  if (tier != Tier::kDevice) {
    return nullptr;
  }
  const size_t bytes = static_cast<size_t>(
      DeviceShardBytes(pack_.manifest().tensors[shard.tensor], shard.shard, compute_type_));
  const std::span<std::byte> memory =
      target_.device_.bytes().subspan(static_cast<size_t>(device_used_bytes_), bytes);
  device_used_bytes_ += static_cast<int64_t>(bytes);
  device_places_.push_back({shard, memory});
  return memory.data();
}

void ResidentWeights::Loader::PlaceOnHost(ShardIndex shard) {
  const size_t bytes =
      static_cast<size_t>(HostShardBytes(pack_.manifest().tensors[shard.tensor], shard.shard));
  const std::span<std::byte> memory =
      target_.host_.bytes().subspan(static_cast<size_t>(host_used_bytes_), bytes);
  host_used_bytes_ += static_cast<int64_t>(bytes);
  host_places_.push_back({shard, memory});
  target_.host_shards_[{shard.tensor, shard.shard}] = memory;
}

bool ResidentWeights::Loader::IsExpanded(ShardIndex shard) const {
  const TensorEntry& tensor = pack_.manifest().tensors[shard.tensor];
  return tensor.layout == TensorLayout::kMatMul &&
         LoadedDType(tensor.dtype, compute_type_) != tensor.dtype;
}

absl::Status ResidentWeights::Loader::UploadShard(ShardIndex shard,
                                                  std::span<const std::byte> bytes,
                                                  std::span<std::byte> place,
                                                  const ShardReader& reader, Device& device) {
  RETURN_IF_ERROR(device.Upload(bytes, place.first(bytes.size())));
  const TensorEntry& tensor = reader.TensorOf(shard);
  if (tensor.layout != TensorLayout::kMatMul) {
    return absl::OkStatus();
  }
  return device.UnpackShard(LoadedShardView(tensor, shard.shard, compute_type_, place.data()));
}

absl::Status ResidentWeights::Loader::ReadShards(const DiskQueueOptions& disk, Pool& device_pool,
                                                 Pool& host_pool, Device& device) {
  ASSIGN_OR_RETURN(const std::unique_ptr<ShardReader> reader, ShardReader::Create(pack_, disk));
  std::vector<ShardTarget> direct = host_places_;
  std::vector<ShardTarget> through_host;
  for (const ShardTarget& place : device_places_) {
    const bool is_direct = device.unified_memory() && !IsExpanded(place.shard);
    (is_direct ? direct : through_host).push_back(place);
  }
  RETURN_IF_ERROR(reader->ReadEach(direct, kLoadWindow, [](ShardIndex, auto) {}));
  return ReadThroughHost(*reader, through_host, device_pool, host_pool, device);
}

absl::Status ResidentWeights::Loader::ReadThroughHost(ShardReader& reader,
                                                      std::span<const ShardTarget> places,
                                                      Pool& device_pool, Pool& host_pool,
                                                      Device& device) {
  if (places.empty()) {
    return absl::OkStatus();
  }
  int64_t slot_bytes = 0;
  int64_t expanded_slot_bytes = 0;
  for (const ShardTarget& place : places) {
    const int64_t bytes = TransferBytes(reader.EntryOf(place.shard).bytes);
    slot_bytes = std::max(slot_bytes, bytes);
    expanded_slot_bytes = std::max(expanded_slot_bytes, IsExpanded(place.shard) ? bytes : 0);
  }
  const size_t num_slots =
      std::clamp<size_t>(static_cast<size_t>(host_pool.free_bytes() / slot_bytes), 1, kLoadWindow);
  ASSIGN_OR_RETURN(
      const Buffer slots,
      host_pool.Reserve(static_cast<int64_t>(num_slots) * slot_bytes, "weights on their way"));
  Buffer uploaded;
  const bool is_expanded_there = device.arena() == nullptr;
  if (!device.unified_memory() && is_expanded_there && expanded_slot_bytes > 0) {
    ASSIGN_OR_RETURN(uploaded, device_pool.Reserve(expanded_slot_bytes, "weights to be expanded"));
  }
  std::vector<ShardTarget> stored;
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t slot = static_cast<size_t>(slot_bytes);
    stored.push_back({places[i].shard, slots.bytes().subspan(i % num_slots * slot, slot)});
  }
  std::vector<std::byte> expanded;  // one shard, where the host cannot write to the device
  absl::Status uploads;
  size_t next = 0;
  RETURN_IF_ERROR(
      reader.ReadEach(stored, num_slots, [&](ShardIndex shard, std::span<const std::byte> bytes) {
        const std::span<std::byte> place = places[next++].memory;
        if (!IsExpanded(shard)) {
          uploads.Update(UploadShard(shard, bytes, place, reader, device));
          return;
        }
        const TensorEntry& tensor = reader.TensorOf(shard);
        const size_t loaded =
            static_cast<size_t>(LoadedShardBytes(tensor, shard.shard, compute_type_));
        if (!is_expanded_there) {
          expanded.resize(loaded);
          ExpandShard(tensor, shard.shard, compute_type_, bytes, expanded, device.workers());
          uploads.Update(UploadShard(shard, expanded, place, reader, device));
          return;
        }
        if (!device.unified_memory()) {
          const std::span<std::byte> there = uploaded.bytes().first(bytes.size());
          uploads.Update(device.Upload(bytes, there));
          bytes = there;
        }
        ExpandShard(tensor, shard.shard, compute_type_, bytes, place.first(loaded),
                    device.workers());
      }));
  return uploads;
}

}  // namespace nightshift
