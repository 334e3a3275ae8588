#include "engine/policy/engine_policy.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

// Rows come in whole panels, where kernels are at their best.
constexpr int64_t kRowsMultiple = 64;
// So that a block whose requests do not end evenly stays full.
constexpr double kPromptSlack = 1.1;
constexpr int64_t kLeastRingBytes = int64_t{64} << 20;
// Shares this near to all of it are all of it.
constexpr double kAll = 1.0 - 1e-6;

int64_t LongestPrompt(const WorkloadProfile& workload) {
  int64_t longest = 1;
  for (const WorkloadClass& one : workload.classes) {
    longest = std::max(longest, one.prompt_tokens - workload.shared_prefix_tokens);
  }
  return longest;
}

// Both of memory that is one where it is.
TierShares SharesOf(double device, double host, bool unified_memory) {
  const double in_memory = device + host;
  if (unified_memory || device >= kAll) {
    return {.device = std::clamp(in_memory >= kAll ? 1.0 : in_memory, 0.0, 1.0), .host = 0.0};
  }
  const double of_device = std::clamp(device, 0.0, 1.0);
  return {.device = of_device,
          .host = in_memory >= kAll ? 1.0 - of_device : std::clamp(host, 0.0, 1.0 - of_device)};
}

}  // namespace

BlockSizes SizesOf(const BlockChoice& choice, const WorkloadProfile& workload) {
  const int64_t block = std::max<int64_t>(1, choice.block_requests);
  const int64_t longest = LongestPrompt(workload);
  const int64_t chunk = choice.chunk_tokens > 0 ? std::min(choice.chunk_tokens, longest) : longest;
  const double prompt = std::max(1.0, workload.mean_prompt_tokens());
  const double output = std::max(1.0, workload.mean_output_tokens());
  const double sweeps_each = std::ceil(prompt / static_cast<double>(chunk)) + output - 1.0;
  const double prompt_rows =
      kPromptSlack * static_cast<double>(block) * prompt / std::max(1.0, sweeps_each);
  // A whole chunk, and never more than all prompts of the block.
  const int64_t prompts = std::clamp(static_cast<int64_t>(std::ceil(prompt_rows)), chunk,
                                     std::max(chunk, block * longest));
  BlockSizes sizes;
  sizes.max_block_requests = block;
  sizes.max_sweep_tokens = RoundUp(block + prompts, kRowsMultiple);
  sizes.prompt_chunk_tokens = chunk;
  const double part =
      static_cast<double>(std::min(choice.batch_requests, block)) / static_cast<double>(block);
  if (choice.batch_requests >= block) {
    sizes.max_batch_tokens = sizes.max_sweep_tokens;
    return sizes;
  }
  sizes.buffering = WeightBuffering::kTwoLayers;
  sizes.max_batch_tokens =
      RoundUp(static_cast<int64_t>(std::ceil(part * static_cast<double>(sizes.max_sweep_tokens))),
              kRowsMultiple);
  return sizes;
}

EngineOptions OptionsFor(const EngineOptions& base, const BlockChoice& choice, const Shares& shares,
                         const TierBudgets& budgets, const WorkloadProfile& workload,
                         int64_t layer_bytes) {
  const BlockSizes sizes = SizesOf(choice, workload);
  EngineOptions options = base;
  options.kv_type = IsFloat(choice.kv) ? std::nullopt : std::optional<DType>(choice.kv);
  options.max_block_requests = sizes.max_block_requests;
  options.max_sweep_tokens = sizes.max_sweep_tokens;
  options.max_batch_tokens = sizes.max_batch_tokens;
  options.prompt_chunk_tokens = sizes.prompt_chunk_tokens;
  options.memory_budget_bytes = budgets.host;
  options.weight_ring_bytes = std::max(kLeastRingBytes, layer_bytes);
  options.weight_budget_bytes = -1;
  TierOptions& tiers = options.tiers;
  tiers.device_budget_bytes = budgets.device;
  const bool unified = tiers.unified_memory();
  const auto share = [&](ShareId id) { return shares[static_cast<size_t>(id)]; };
  tiers.weights = SharesOf(share(ShareId::kWeightsDevice), share(ShareId::kWeightsHost), unified);
  tiers.kv = SharesOf(share(ShareId::kKvDevice), share(ShareId::kKvHost), unified);
  tiers.activations =
      SharesOf(share(ShareId::kActivationsDevice), share(ShareId::kActivationsHost), unified);
  const auto spills = [](const TierShares& of) { return of.of_device() + of.of_host() < kAll; };
  tiers.disk_budget_bytes = spills(tiers.kv) || spills(tiers.activations) ? budgets.disk : 0;
  tiers.schedule = ScheduleKind::kRolling;
  tiers.buffering = sizes.buffering;
  tiers.host_attention = choice.host_attention && !unified;
  return options;
}

}  // namespace nightshift
