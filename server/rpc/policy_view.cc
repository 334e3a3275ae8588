#include "server/rpc/policy_view.h"

#include <array>
#include <cstddef>
#include <string>

#include "absl/strings/str_format.h"

#include "kernels/kv_page.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxTextBytes = 2048;

void AddShares(const char* what, const std::array<double, 3>& amounts, v1::Policy& policy) {
  const double all = amounts[0] + amounts[1] + amounts[2];
  v1::PolicyShares& shares = *policy.add_shares();
  shares.set_what(what);
  shares.set_device(all > 0.0 ? amounts[0] / all : 1.0);
  shares.set_host(all > 0.0 ? amounts[1] / all : 0.0);
  shares.set_disk(all > 0.0 ? amounts[2] / all : 0.0);
}

std::array<double, 3> Doubles(int64_t device, int64_t host, int64_t disk) {
  return {static_cast<double>(device), static_cast<double>(host), static_cast<double>(disk)};
}

void FillHardware(const PolicyState& state, v1::PolicyHardware& hardware) {
  const HardwareProfile& profile = *state.hardware;
  hardware.set_name(CleanText(profile.name, kMaxTextBytes));
  hardware.set_source(CleanText(profile.source, kMaxTextBytes));
  hardware.set_date(CleanText(profile.date, kMaxTextBytes));
  hardware.set_stale(CleanText(state.stale, kMaxTextBytes));
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneId lane = static_cast<LaneId>(i);
    const size_t sweeps = profile.refinement.recent(lane).size();
    if (sweeps > 0) {
      v1::PolicyHardware::Factor& factor = *hardware.add_factors();
      factor.set_lane(LaneName(lane));
      factor.set_factor(profile.refinement.Factor(lane));
      factor.set_sweeps(static_cast<int64_t>(sweeps));
    }
  }
}

void FillOptions(const EngineOptions& options, v1::Policy& policy) {
  policy.set_block_requests(options.max_block_requests);
  policy.set_sweep_tokens(options.max_sweep_tokens);
  policy.set_batch_tokens(options.max_batch_tokens);
  policy.set_chunk_tokens(options.prompt_chunk_tokens);
  policy.set_schedule(ScheduleKindName(options.tiers.schedule));
  policy.set_attention(options.tiers.host_attention ? "host" : "device");
}

void FillTiers(const RunPlan& run, v1::Policy& policy) {
  const EngineOptions& options = run.options;
  const MemoryPlan& memory = run.predicted.memory;
  const auto add = [&](Tier tier, int64_t bytes, int64_t capacity) {
    if (capacity == 0) {
      return;
    }
    v1::PolicyTier& wire = *policy.add_tiers();
    wire.set_tier(TierName(tier));
    wire.set_bytes(bytes);
    wire.set_capacity_bytes(capacity);
    wire.set_seconds_per_gib(run.is_default ? 0.0
                                            : run.plan.seconds_per_gib[static_cast<size_t>(tier)]);
  };
  add(Tier::kDevice, memory.device_bytes, options.tiers.device_budget_bytes);
  add(Tier::kHost, memory.host_bytes, options.memory_budget_bytes);
  add(Tier::kDisk, memory.disk_bytes, options.tiers.disk_budget_bytes);
}

void FillPlan(const PolicyState& state, v1::Policy& policy) {
  const RunPlan& run = *state.plan;
  const SimulatedRun& predicted = run.predicted;
  policy.set_requests(state.workload.requests());
  policy.set_prompt_tokens(state.workload.mean_prompt_tokens());
  policy.set_output_tokens(state.workload.mean_output_tokens());
  FillOptions(run.options, policy);
  policy.set_weights(DTypeName(state.weights));
  AddShares("weights", state.weight_bytes, policy);
  const KvPages& pages = predicted.memory.kv_pages;
  AddShares("kv", Doubles(pages.device, pages.host, pages.disk), policy);
  const ActivationRows& rows = predicted.memory.executor.activations;
  AddShares("activations", Doubles(rows.device, rows.host, rows.disk), policy);
  policy.set_is_default(run.is_default);
  policy.set_seconds(predicted.seconds);
  policy.set_tokens_per_s(predicted.tokens_per_s);
  policy.set_prompt_tokens_per_s(predicted.prompt_tokens_per_s);
  policy.set_output_tokens_per_s(predicted.output_tokens_per_s);
  policy.set_bottleneck(LaneName(predicted.bottleneck));
  FillTiers(run, policy);
  policy.set_binding(ConstraintOf(run));
  if (!run.plan.reliefs.empty()) {
    const PlanRelief& best = run.plan.reliefs.front();
    policy.set_shadow_price(
        absl::StrFormat("%s would give %+.3g %%", best.what, 100.0 * best.gain));
  }
}

}  // namespace

v1::Policy MakePolicy(const PolicyState& state) {
  v1::Policy policy;
  policy.set_model(state.model);
  policy.set_reason(CleanText(state.reason, kMaxTextBytes));
  if (!state.model.empty()) {
    policy.set_compute_type(ComputeTypeName(state.compute_type));
    policy.set_kv_type(state.kv_type ? KvTypeName(*state.kv_type)
                                     : ComputeTypeName(state.compute_type));
    policy.set_sparse_attention(state.sparse_attention);
  }
  if (state.hardware != nullptr) {
    FillHardware(state, *policy.mutable_hardware());
  }
  policy.set_planned(state.plan.has_value());
  if (state.plan.has_value()) {
    FillPlan(state, policy);
  }
  return policy;
}

void HideWorkload(v1::Policy& policy) {
  policy.clear_requests();
  policy.clear_prompt_tokens();
  policy.clear_output_tokens();
  policy.clear_seconds();
  for (v1::PolicyTier& tier : *policy.mutable_tiers()) {
    tier.clear_seconds_per_gib();
  }
}

v1::ExplainPolicyResponse MakeExplanation(const PolicyState& state) {
  v1::ExplainPolicyResponse response;
  *response.mutable_policy() = MakePolicy(state);
  if (!state.plan.has_value()) {
    return response;
  }
  const Plan& plan = state.plan->plan;
  for (const PlanRelief& relief : plan.reliefs) {
    v1::PolicyRelief& wire = *response.add_reliefs();
    wire.set_what(relief.what);
    wire.set_gain(relief.gain);
  }
  for (const PlanRejection& rejection : plan.rejections) {
    v1::PolicyAlternative& wire = *response.add_alternatives();
    wire.set_what(rejection.what);
    wire.set_block_requests(rejection.choice.block_requests);
    wire.set_batch_requests(rejection.choice.batch_requests);
    wire.set_chunk_tokens(rejection.choice.chunk_tokens);
    if (rejection.slowdown) {
      wire.set_slowdown(*rejection.slowdown);
    }
    wire.set_why(CleanText(rejection.why, kMaxTextBytes));
  }
  return response;
}

}  // namespace nightshift
