#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/memory/kv_layers.h"
#include "engine/memory/shard_reader.h"
#include "engine/model/forward.h"
#include "engine/schedule/shard_ring.h"

namespace nightshift {
namespace {

// An engine whose pages hold less than one request of this length is refused at start.
constexpr int64_t kLeastKvTokens = 512;
// Each buffer is rounded up by the pool.
constexpr int64_t kRounding = 12 * 4096;

int64_t Part(double share, int64_t whole) {
  return static_cast<int64_t>(share * static_cast<double>(whole));
}

// One attempt to share the budgets.
class Share {
 public:
  Share(const EngineOptions& options, const PackManifest& manifest, const std::string& name,
        bool streams_weights)
      : options_(options),
        tiers_(options.tiers),
        manifest_(manifest),
        name_(name),
        config_(manifest.config),
        layout_(KvLayoutOf(config_, options.compute_type, options.kv_type)),
        layers_(config_),
        needs_(layers_.Needs(LongestSpan(options))),
        page_bytes_(KvCache::PageBytes(layout_, layers_)),
        is_one_batch_((streams_weights && tiers_.buffering == WeightBuffering::kRing) ||
                      tiers_.schedule == ScheduleKind::kRow) {
    ExecutorLimits& limits = plan_.executor;
    limits.max_sweep_tokens = options.max_sweep_tokens;
    limits.max_batch_tokens = is_one_batch_
                                  ? options.max_sweep_tokens
                                  : std::min(options.max_batch_tokens, options.max_sweep_tokens);
    limits.overlap = tiers_.overlap;
    limits.kv.unified_memory = tiers_.unified_memory();
    limits.kv.host_attention = tiers_.host_attention && !tiers_.unified_memory();
    limits.kv.num_slots = tiers_.unified_memory() ? 2 : 3;
    ShareActivations();
    PlanStaging({});
  }

  // Memory that weights on their way take.
  void TakeRings() {
    const WeightPlacement none = PlaceWeights(manifest_, options_.compute_type, {});
    const std::vector<StreamedShard> shards = StreamedShards(manifest_, none);
    const int64_t largest = TransferBytes(none.max_stored_bytes);
    least_ring_bytes_ = 2 * largest;
    if (!is_one_batch_) {
      least_ring_bytes_ = ShardRing::BytesFor(2 * LargestLayer(shards), largest);
    }
    const int64_t ring = std::max(
        least_ring_bytes_, std::min(options_.weight_ring_bytes, options_.memory_budget_bytes / 8));
    plan_.host_ring_bytes = ring;
    if (!tiers_.unified_memory()) {
      plan_.host_ring_bytes = std::max(
          2 * largest, std::min(options_.weight_ring_bytes, options_.memory_budget_bytes / 8));
      plan_.device_ring_bytes = std::max(
          least_ring_bytes_, std::min(options_.weight_ring_bytes, tiers_.device_budget_bytes / 8));
    }
    stream_of_ = none;
  }

  // What the device has for weights and KV pages.
  int64_t device_rest_bytes() const {
    return device_budget_bytes() - kRounding - Used(DeviceParts());
  }
  int64_t host_rest_bytes() const {
    return options_.memory_budget_bytes - kRounding - Used(HostParts());
  }
  int64_t device_budget_bytes() const {
    return tiers_.unified_memory() ? options_.memory_budget_bytes : tiers_.device_budget_bytes;
  }

  void TakeWeights(const WeightBudget& budget) {
    plan_.weights = PlaceWeights(manifest_, options_.compute_type, budget);
  }

  // KV pages get what is left, in the shares that are asked for.
  absl::StatusOr<MemoryPlan> Finish() {
    const int64_t most = most_kv_bytes() / page_bytes_;
    const int64_t least = (least_kv_bytes() + page_bytes_ - 1) / page_bytes_;
    int64_t fitting = 0;
    for (int64_t first = 1, last = most; first <= last;) {
      const int64_t middle = first + (last - first) / 2;
      if (FitsKv(SplitPages(middle))) {
        fitting = middle;
        first = middle + 1;
      } else {
        last = middle - 1;
      }
    }
    if (fitting < least) {
      return Refuse(SplitPages(least));
    }
    plan_.kv_pages = SplitPages(fitting);
    PlanStaging(plan_.kv_pages);
    CountBytes();
    return plan_;
  }

  WorkingBytes WorkingBytesWith(const KvPages& pages) {
    PlanStaging(pages);
    const ExecutorLimits& limits = plan_.executor;
    WorkingBytes bytes{.device = Executor::DeviceBytes(config_, layout_, limits),
                       .host = Executor::HostBytes(config_, layout_, limits),
                       .disk = Executor::DiskBytes(config_, limits)};
    if (tiers_.unified_memory()) {
      bytes.device += std::exchange(bytes.host, 0);
    }
    return bytes;
  }

  int64_t least_kv_bytes() const {
    return needs_.Most(std::min(config_.context_tokens, kLeastKvTokens)) * page_bytes_;
  }
  int64_t most_kv_bytes() const {
    return options_.max_block_requests * needs_.Most(config_.context_tokens) * page_bytes_;
  }
  int64_t all_weight_bytes() const {
    return PlaceWeights(manifest_, options_.compute_type, {.device_bytes = INT64_MAX / 2})
        .device_bytes;
  }

 private:
  struct NamedBytes {
    const char* name;
    int64_t bytes;
  };
  static int64_t Used(const std::vector<NamedBytes>& parts) {
    int64_t used = 0;
    for (const NamedBytes& part : parts) {
      used += part.bytes;
    }
    return used;
  }
  std::vector<NamedBytes> DeviceParts() const {
    std::vector<NamedBytes> parts = {
        {"the weights kept there", plan_.weights.device_bytes},
        {"activations and scratch", Executor::DeviceBytes(config_, layout_, plan_.executor)},
        {"weights on their way", DeviceStreamBytes()}};
    if (tiers_.unified_memory()) {
      for (const NamedBytes& part : HostParts()) {
        parts.push_back(part);
      }
    }
    return parts;
  }
  std::vector<NamedBytes> HostParts() const {
    return {
        {"the weights kept beside the device", plan_.weights.host_bytes},
        {"activations beside the device", Executor::HostBytes(config_, layout_, plan_.executor)},
        {"weights on their way from disk", HostStreamBytes()}};
  }
  int64_t DeviceStreamBytes() const {
    return plan_.host_ring_bytes == 0
               ? 0
               : WeightStream::DeviceBytes(stream_of_, plan_.stream_options(options_));
  }
  int64_t HostStreamBytes() const {
    return plan_.host_ring_bytes == 0
               ? 0
               : WeightStream::HostBytes(stream_of_, plan_.stream_options(options_));
  }

  // But the head, whose shards are used one by one whatever the number of batches.
  int64_t LargestLayer(const std::vector<StreamedShard>& shards) const {
    std::vector<int64_t> bytes(static_cast<size_t>(config_.num_layers) + 1, 0);
    for (const StreamedShard& shard : shards) {
      bytes[static_cast<size_t>(shard.layer)] += shard.bytes;
    }
    bytes.back() = 0;
    return *std::max_element(bytes.begin(), bytes.end());
  }

  double OfDevice(const TierShares& shares) const {
    return shares.of_device() + (tiers_.unified_memory() ? shares.of_host() : 0.0);
  }
  static bool UsesDisk(const TierShares& shares) {
    return shares.of_device() + shares.of_host() < 1.0 - 1e-9;
  }

  void ShareActivations() {
    ExecutorLimits& limits = plan_.executor;
    const TierShares& shares = tiers_.activations;
    ActivationRows& rows = limits.activations;
    if (!shares.is_given() || OfDevice(shares) >= 1.0) {
      rows.device = limits.max_sweep_tokens;
      return;
    }
    // A tier's end may be too small for the batch that is next, which the last tier has room for.
    rows.device = Part(OfDevice(shares), limits.max_sweep_tokens);
    const int64_t rest = limits.max_sweep_tokens - rows.device + 2 * limits.max_batch_tokens;
    if (UsesDisk(shares)) {
      rows.host = tiers_.unified_memory() ? 0 : Part(shares.of_host(), limits.max_sweep_tokens);
      rows.disk = rest - rows.host;
    } else {
      rows.host = rest;
    }
  }

  KvPages SplitPages(int64_t total) const {
    const TierShares& shares = tiers_.kv;
    if (!shares.is_given() || OfDevice(shares) >= 1.0) {
      return {.device = total};
    }
    KvPages pages;
    pages.device = Part(OfDevice(shares), total);
    if (UsesDisk(shares)) {
      pages.host = tiers_.unified_memory() ? 0 : Part(shares.of_host(), total);
      pages.disk = total - pages.device - pages.host;
    } else {
      pages.host = total - pages.device;
    }
    return pages;
  }

  // Staging for batches of these pages.
  void PlanStaging(const KvPages& pages) {
    ExecutorLimits& limits = plan_.executor;
    limits.kv.has_disk = pages.disk > 0;
    limits.kv.pages_per_slot = 0;
    const int64_t batches =
        (limits.max_sweep_tokens + limits.max_batch_tokens - 1) / limits.max_batch_tokens;
    limits.max_batches = 2 * batches + 1;
    if (pages.host + pages.disk == 0) {
      return;
    }
    // Of one layer: no more than there are ids.
    const int64_t of_block = pages.total();
    const int64_t of_request =
        std::min(of_block, PagesFor(config_.context_tokens + LongestSpan(options_)));
    // Batches hold whole requests: beside a batch's part there is room for one more.
    limits.kv.pages_per_slot =
        is_one_batch_ ? of_block : std::min(of_block, of_block / batches + of_request);
    limits.max_batches +=
        2 * ((of_block + limits.kv.pages_per_slot - 1) / limits.kv.pages_per_slot);
  }

  // As reserved: streams for what is streamed, not for all that could be.
  void CountBytes() {
    stream_of_ = plan_.weights;
    const bool streams = !plan_.weights.all_on_device();
    plan_.host_ring_bytes = streams ? plan_.host_ring_bytes : 0;
    plan_.device_ring_bytes = streams ? plan_.device_ring_bytes : 0;
    plan_.device_bytes = Used(DeviceParts()) + plan_.kv_pages.device * page_bytes_;
    plan_.host_bytes = Used(HostParts()) + plan_.kv_pages.host * page_bytes_;
    plan_.disk_bytes = DiskBytes(plan_.kv_pages);
    if (tiers_.unified_memory()) {
      plan_.host_bytes = std::exchange(plan_.device_bytes, 0);
    }
  }

  int64_t DiskBytes(const KvPages& pages) const {
    return pages.disk * page_bytes_ + Executor::DiskBytes(config_, plan_.executor);
  }

  bool FitsKv(const KvPages& pages) {
    PlanStaging(pages);
    return device_rest_bytes() >= pages.device * page_bytes_ &&
           (tiers_.unified_memory() || host_rest_bytes() >= pages.host * page_bytes_) &&
           DiskBytes(pages) <= tiers_.disk_budget_bytes;
  }

  absl::Status Refuse(const KvPages& pages) {
    FitsKv(pages);
    std::string parts;
    for (const NamedBytes& part : DeviceParts()) {
      if (part.bytes > 0) {
        absl::StrAppend(&parts, part.name, " ", part.bytes, ", ");
      }
    }
    const bool unified = tiers_.unified_memory();
    const int64_t kv_bytes = pages.device * page_bytes_;
    const int64_t missing = kv_bytes - device_rest_bytes();
    std::string message = absl::StrCat(
        "share a ", unified ? "memory" : "device", " budget of ", device_budget_bytes(),
        " bytes: of ", name_, " as ", ComputeTypeName(options_.compute_type), ", ", parts,
        "keys and values of one request ", kv_bytes, "; raise the budget to at least ",
        device_budget_bytes() + std::max<int64_t>(missing, 0) + RingGrowth(missing),
        " or lower max_sweep_tokens");
    if (!unified) {
      absl::StrAppend(&message, "; the host has ", options_.memory_budget_bytes,
                      " bytes, of which ", Used(HostParts()), " are taken and ",
                      pages.host * page_bytes_, " asked for keys and values");
    }
    if (const int64_t disk_bytes = DiskBytes(pages); disk_bytes > 0) {
      absl::StrAppend(&message, "; the disk has ", tiers_.disk_budget_bytes,
                      " bytes, of which keys, values and activations ask ", disk_bytes);
    }
    return absl::ResourceExhaustedError(message);
  }
  // The ring grows with the budget, by an eighth.
  int64_t RingGrowth(int64_t missing_bytes) const {
    if (plan_.host_ring_bytes == 0 || missing_bytes <= 0) {
      return 0;
    }
    const int64_t ring = tiers_.unified_memory() ? plan_.host_ring_bytes : plan_.device_ring_bytes;
    const int64_t without_ring = device_budget_bytes() + missing_bytes - TransferBytes(ring);
    const int64_t grown =
        std::max(least_ring_bytes_, std::min(options_.weight_ring_bytes, (without_ring + 6) / 7));
    return TransferBytes(grown) - TransferBytes(ring);
  }

  const EngineOptions& options_;
  const TierOptions& tiers_;
  const PackManifest& manifest_;
  const std::string& name_;
  const ModelConfig& config_;
  const KvPageLayout layout_;
  const KvLayers layers_;
  const KvPageNeeds needs_;
  const int64_t page_bytes_;
  const bool is_one_batch_;
  int64_t least_ring_bytes_ = 0;
  WeightPlacement stream_of_;  // with nothing on the device: an upper bound for what streams need
  MemoryPlan plan_;
};

}  // namespace

WeightStreamOptions MemoryPlan::stream_options(const EngineOptions& options) const {
  WeightStreamOptions stream{.compute_type = options.compute_type,
                             .host_ring_bytes = host_ring_bytes,
                             .device_ring_bytes = device_ring_bytes,
                             .disk = {},
                             .checks = options.tiers.weight_checks};
  stream.disk.backend = options.disk_backend;
  return stream;
}

int64_t LongestSpan(const EngineOptions& options) {
  return options.prompt_chunk_tokens > 0
             ? std::min(options.prompt_chunk_tokens, options.max_sweep_tokens)
             : options.max_sweep_tokens;
}

WorkingBytes WorkingBytesOf(const EngineOptions& options, const PackManifest& manifest,
                            bool streams_weights, const KvPages& pages) {
  return Share(options, manifest, manifest.model_name, streams_weights).WorkingBytesWith(pages);
}

absl::StatusOr<MemoryPlan> PlanMemory(const EngineOptions& options, const PackManifest& manifest,
                                      const std::string& name) {
  const TierOptions& tiers = options.tiers;
  Share resident(options, manifest, name, false);
  const int64_t all_bytes = resident.all_weight_bytes();
  const double device_share =
      tiers.weights.of_device() + (tiers.unified_memory() ? tiers.weights.of_host() : 0.0);
  int64_t asked_bytes = options.weight_budget_bytes;
  if (tiers.weights.is_given()) {
    asked_bytes = device_share >= 1.0 ? all_bytes : Part(device_share, all_bytes);
  }
  const bool fits = resident.device_rest_bytes() - all_bytes >= resident.least_kv_bytes();
  if (asked_bytes >= all_bytes || (asked_bytes < 0 && fits)) {
    resident.TakeWeights({.device_bytes = all_bytes});
    return resident.Finish();
  }
  Share streamed(options, manifest, name, true);
  streamed.TakeRings();
  const int64_t rest_bytes = streamed.device_rest_bytes();
  const int64_t kv_bytes =
      std::clamp(rest_bytes / 2, streamed.least_kv_bytes(),
                 std::max(streamed.least_kv_bytes(), streamed.most_kv_bytes()));
  // One prompt enters beside the tokens of a block that decodes.
  WeightBudget budget{.sweep_tokens = std::min(options.max_sweep_tokens,
                                               options.max_block_requests + LongestSpan(options))};
  budget.device_bytes = asked_bytes >= 0 ? asked_bytes : rest_bytes - kv_bytes;
  if (!tiers.unified_memory() && tiers.weights.is_given()) {
    const bool uses_disk = tiers.weights.of_device() + tiers.weights.of_host() < 1.0;
    budget.host_bytes = uses_disk ? Part(tiers.weights.of_host(), all_bytes) : INT64_MAX / 2;
  } else if (!tiers.unified_memory()) {
    // Half, where keys and values may lie there too.
    budget.host_bytes = streamed.host_rest_bytes() / (tiers.kv.is_given() ? 2 : 1);
  }
  streamed.TakeWeights(budget);
  return streamed.Finish();
}

}  // namespace nightshift
