#include "engine/memory_plan.h"

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

#include "engine/memory/kv_cache.h"
#include "engine/memory/kv_layers.h"
#include "engine/memory/shard_reader.h"
#include "engine/memory/weight_stream.h"
#include "engine/model/forward.h"

namespace nightshift {
namespace {

// An engine whose pages hold less than one request of this length is refused at start.
constexpr int64_t kLeastKvTokens = 512;
// Each buffer is rounded up by the pool.
constexpr int64_t kRounding = 6 * 4096;

// One attempt to share the budget.
class Share {
 public:
  Share(const EngineOptions& options, const Pack& pack, const ExecutorLimits& executor)
      : options_(options),
        pack_(pack),
        config_(pack.manifest().config),
        layers_(config_),
        needs_(layers_.Needs(LongestSpan(options))),
        page_bytes_(KvCache::PageBytes(KvLayoutOf(config_, options.compute_type), layers_)),
        activation_bytes_(Executor::MemoryBytes(config_, executor)),
        rest_bytes_(options.memory_budget_bytes - activation_bytes_ - kRounding) {
    plan_.executor = executor;
  }

  void TakeRing() {
    const WeightPlacement none = Place(0);
    largest_shard_bytes_ = TransferBytes(none.max_stored_bytes);
    plan_.ring_bytes =
        std::max(2 * largest_shard_bytes_,
                 std::min(options_.weight_ring_bytes, options_.memory_budget_bytes / 8));
    stream_bytes_ = WeightStream::MemoryBytes(none, plan_.ring_bytes);
    rest_bytes_ -= stream_bytes_;
  }
  void TakeWeights(WeightPlacement weights) {
    rest_bytes_ -= weights.resident_bytes;
    plan_.weights = std::move(weights);
  }
  // KV pages get what is left.
  absl::StatusOr<MemoryPlan> Finish() {
    if (rest_bytes_ < least_kv_bytes()) {
      return Refuse();
    }
    plan_.kv_pages = std::min(rest_bytes_ / page_bytes_, most_kv_bytes() / page_bytes_);
    return plan_;
  }

  WeightPlacement Place(int64_t bytes) const {
    return PlaceWeights(pack_.manifest(), options_.compute_type, bytes);
  }
  int64_t rest_bytes() const { return rest_bytes_; }
  int64_t least_kv_bytes() const {
    return needs_.Most(std::min(config_.context_tokens, kLeastKvTokens)) * page_bytes_;
  }
  int64_t most_kv_bytes() const {
    return options_.max_block_requests * needs_.Most(config_.context_tokens) * page_bytes_;
  }

 private:
  absl::Status Refuse() const {
    return absl::ResourceExhaustedError(absl::StrCat(
        "share a memory budget of ", options_.memory_budget_bytes, " bytes: the weights of ",
        pack_.path(), " take ", plan_.weights.resident_bytes, " as ",
        ComputeTypeName(options_.compute_type),
        stream_bytes_ > 0
            ? absl::StrCat(", reading the others ", stream_bytes_)
            : std::string(),
        ", activations and scratch ", activation_bytes_, ", keys and values of one request ",
        least_kv_bytes(), "; raise the budget to at least ", LeastBudget(),
        " or lower max_sweep_tokens"));
  }
  // The ring grows with the budget, by an eighth.
  int64_t LeastBudget() const {
    const int64_t without_ring = options_.memory_budget_bytes - rest_bytes_ + least_kv_bytes() -
                                 TransferBytes(plan_.ring_bytes);
    if (plan_.ring_bytes == 0) {
      return without_ring;
    }
    const int64_t ring_bytes =
        std::max(2 * largest_shard_bytes_,
                 std::min(options_.weight_ring_bytes, (without_ring + 6) / 7));
    return without_ring + TransferBytes(ring_bytes);
  }

  const EngineOptions& options_;
  const Pack& pack_;
  const ModelConfig& config_;
  const KvLayers layers_;
  const KvPageNeeds needs_;
  const int64_t page_bytes_;
  const int64_t activation_bytes_;
  int64_t largest_shard_bytes_ = 0;
  int64_t stream_bytes_ = 0;
  int64_t rest_bytes_;
  MemoryPlan plan_;
};

}  // namespace

int64_t LongestSpan(const EngineOptions& options) {
  return options.prompt_chunk_tokens > 0
             ? std::min(options.prompt_chunk_tokens, options.max_sweep_tokens)
             : options.max_sweep_tokens;
}

absl::StatusOr<MemoryPlan> PlanMemory(const EngineOptions& options, const Pack& pack) {
  Share resident(options, pack, {options.max_sweep_tokens, options.max_batch_tokens});
  const WeightPlacement all = resident.Place(INT64_MAX);
  const bool fits = resident.rest_bytes() - all.resident_bytes >= resident.least_kv_bytes();
  if (options.weight_budget_bytes >= all.resident_bytes ||
      (options.weight_budget_bytes < 0 && fits)) {
    resident.TakeWeights(all);
    return resident.Finish();
  }
  Share streamed(options, pack, {options.max_sweep_tokens, options.max_sweep_tokens});
  streamed.TakeRing();
  const int64_t kv_bytes = std::clamp(streamed.rest_bytes() / 2, streamed.least_kv_bytes(),
                                      std::max(streamed.least_kv_bytes(), streamed.most_kv_bytes()));
  streamed.TakeWeights(streamed.Place(options.weight_budget_bytes >= 0
                                          ? options.weight_budget_bytes
                                          : streamed.rest_bytes() - kv_bytes));
  return streamed.Finish();
}

}  // namespace nightshift
