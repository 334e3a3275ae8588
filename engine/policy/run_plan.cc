#include "engine/policy/run_plan.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/memory/kv_layers.h"
#include "engine/memory_plan.h"
#include "engine/policy/discrete_form.h"
#include "engine/policy/engine_policy.h"
#include "engine/policy/nightshift_cost.h"
#include "engine/policy/plan_trials.h"
#include "engine/schedule/sweep_schedule.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// The engine's prompt chunks; 0: whole prompts.
const std::vector<int64_t> kChunks = {0, 128, 512};
// What a plan has to be faster by to be worth leaving the base options for.
constexpr double kLeastGain = 1.01;

int64_t PackBytes(const PackManifest& manifest) {
  int64_t bytes = 0;
  for (const TensorEntry& tensor : manifest.tensors) {
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      bytes += HostShardBytes(tensor, i);
    }
  }
  return bytes;
}

// The machine as far as the budgets of the options let it be used.
HardwareProfile Within(const RunRequest& request, const EngineOptions& options) {
  const HardwareProfile& profile = request.hardware;
  HardwareProfile within =
      options.tiers.unified_memory() ? profile : DiscreteForm(profile, options.tiers);
  within.host_bytes = options.memory_budget_bytes;
  // The pack is there already; the budget is for keys, values and activations.
  within.disk_bytes = options.tiers.disk_budget_bytes + PackBytes(request.manifest);
  return within;
}

void FixShares(const TierShares& given, bool unified_memory, ShareId device, SearchSpace& space) {
  const double of_device = given.of_device() + (unified_memory ? given.of_host() : 0.0);
  const double of_host = unified_memory ? 0.0 : given.of_host();
  const size_t first = static_cast<size_t>(device);
  space.shares[first] = of_device;
  space.shares[first + 1] = of_host;
  space.shares[first + 2] = 1.0 - of_device - of_host;
}

SearchSpace SpaceOf(const RunRequest& request, DType weights, int64_t weight_bytes) {
  const EngineOptions& base = request.base;
  const FixedOptions& fixed = request.fixed;
  const bool unified = base.tiers.unified_memory();
  SearchSpace space;
  space.requests = request.workload.requests();
  space.weights = {weights};
  const DType computed = ComputedDType(base.compute_type);
  space.kv =
      request.kv_types.empty() ? std::vector{base.kv_type.value_or(computed)} : request.kv_types;
  space.chunk_tokens = fixed.prompt_chunk_tokens ? std::vector{base.prompt_chunk_tokens} : kChunks;
  if (unified) {
    space.host_attention = false;
  } else if (fixed.host_attention) {
    space.host_attention = base.tiers.host_attention;
  }
  if (fixed.max_block_requests) {
    space.block_requests = std::min(base.max_block_requests, space.requests);
  }
  if (fixed.weights && base.tiers.weights.is_given()) {
    FixShares(base.tiers.weights, unified, ShareId::kWeightsDevice, space);
  } else if (fixed.weights && base.weight_budget_bytes >= 0) {
    const double share = std::min(1.0, static_cast<double>(base.weight_budget_bytes) /
                                           static_cast<double>(std::max<int64_t>(1, weight_bytes)));
    space.shares[static_cast<size_t>(ShareId::kWeightsDevice)] = share;
  }
  if (base.tiers.disk_budget_bytes == 0) {
    space.shares[static_cast<size_t>(ShareId::kKvDisk)] = 0.0;
    space.shares[static_cast<size_t>(ShareId::kActivationsDisk)] = 0.0;
  }
  if (fixed.kv) {
    FixShares(base.tiers.kv, unified, ShareId::kKvDevice, space);
  }
  if (fixed.activations) {
    FixShares(base.tiers.activations, unified, ShareId::kActivationsDevice, space);
  }
  space.deadline_seconds = request.workload.deadline_seconds;
  return space;
}

// What the user has set holds whatever was found.
void KeepFixed(const RunRequest& request, EngineOptions& options) {
  const EngineOptions& base = request.base;
  const FixedOptions& fixed = request.fixed;
  const auto keep = [](bool is_fixed, const auto& from, auto& to) {
    if (is_fixed) {
      to = from;
    }
  };
  keep(fixed.max_block_requests, base.max_block_requests, options.max_block_requests);
  keep(fixed.max_sweep_tokens, base.max_sweep_tokens, options.max_sweep_tokens);
  keep(fixed.max_batch_tokens, base.max_batch_tokens, options.max_batch_tokens);
  keep(fixed.prompt_chunk_tokens, base.prompt_chunk_tokens, options.prompt_chunk_tokens);
  keep(fixed.weights, base.weight_budget_bytes, options.weight_budget_bytes);
  keep(fixed.weights, base.tiers.weights, options.tiers.weights);
  keep(fixed.kv, base.tiers.kv, options.tiers.kv);
  keep(fixed.activations, base.tiers.activations, options.tiers.activations);
  keep(fixed.schedule, base.tiers.schedule, options.tiers.schedule);
  keep(fixed.buffering, base.tiers.buffering, options.tiers.buffering);
  keep(fixed.host_attention, base.tiers.host_attention, options.tiers.host_attention);
  options.max_sweep_tokens = std::max(options.max_sweep_tokens, options.max_block_requests);
  options.tiers.disk_budget_bytes = base.tiers.disk_budget_bytes;
}

// That the largest request fits, too.
absl::StatusOr<SimulatedRun> Try(const RunRequest& request, const EngineOptions& options,
                                 const HardwareProfile& hardware) {
  RETURN_IF_ERROR(options.Validate());
  ASSIGN_OR_RETURN(SimulatedRun run, SimulateRun({.manifest = request.manifest,
                                                  .name = request.name,
                                                  .options = options,
                                                  .hardware = hardware},
                                                 request.workload));
  const KvPageNeeds needs = KvLayers(request.manifest.config).Needs(LongestSpan(options));
  const int64_t tokens =
      std::min(request.longest_request_tokens, request.manifest.config.context_tokens);
  const int64_t pages = run.memory.kv_pages.total();
  if (needs.Most(tokens) > pages) {
    return absl::ResourceExhaustedError(
        absl::StrCat("plan ", request.name, ": a request of ", tokens, " tokens takes ",
                     needs.Most(tokens), " kv pages, ", pages, " fit; raise the memory budget of ",
                     options.memory_budget_bytes, " bytes"));
  }
  return run;
}

// What is planned with.
struct Planning {
  NightshiftModel model;
  DType weights;
  std::unique_ptr<NightshiftCost> cost;
  PlanOptions options;
};

absl::StatusOr<std::unique_ptr<Planning>> Prepare(const RunRequest& request,
                                                  const HardwareProfile& hardware) {
  auto planning = std::make_unique<Planning>();
  planning->weights = MatrixType(request.manifest);
  planning->model = {.name = request.name,
                     .forms = {{planning->weights, request.manifest}},
                     .sparse_attention = request.base.sparse_attention};
  ASSIGN_OR_RETURN(planning->cost,
                   NightshiftCost::Create(planning->model, request.base.compute_type, hardware,
                                          request.workload));
  int64_t weight_bytes = 0;
  for (const TensorEntry& tensor : request.manifest.tensors) {
    for (size_t i = 0; i < tensor.shards.size(); ++i) {
      weight_bytes += DeviceShardBytes(tensor, i, request.base.compute_type);
    }
  }
  PlanOptions& options = planning->options;
  options.space = SpaceOf(request, planning->weights, weight_bytes);
  for (const WorkloadClass& one : request.workload.classes) {
    options.prompt_tokens += static_cast<double>(one.prompt_tokens * one.requests);
    options.output_tokens += static_cast<double>(one.output_tokens * one.requests);
  }
  return planning;
}

absl::StatusOr<Trial> Search(const RunRequest& request, const HardwareProfile& hardware,
                             const Planning& planning) {
  const TierBudgets budgets{.device = request.base.tiers.device_budget_bytes,
                            .host = request.base.memory_budget_bytes,
                            .disk = request.base.tiers.disk_budget_bytes};
  return TryPlans(
      *planning.cost, planning.options,
      [&](const BlockChoice& choice, const Shares& shares) -> absl::StatusOr<TriedChoice> {
        EngineOptions options = OptionsFor(request.base, choice, shares, budgets, request.workload,
                                           planning.cost->LayerBytes(planning.weights));
        KeepFixed(request, options);
        ASSIGN_OR_RETURN(SimulatedRun run, Try(request, options, hardware));
        return TriedChoice{.options = std::move(options), .run = std::move(run)};
      });
}

}  // namespace

absl::StatusOr<SimulatedRun> PredictRun(const RunRequest& request, const EngineOptions& options) {
  RETURN_IF_ERROR(request.workload.Validate(request.manifest.config.context_tokens));
  return Try(request, options, Within(request, options));
}

absl::StatusOr<RunPlan> PlanRun(const RunRequest& request) {
  RETURN_IF_ERROR(request.base.Validate());
  RETURN_IF_ERROR(request.workload.Validate(request.manifest.config.context_tokens));
  const HardwareProfile hardware = Within(request, request.base);
  ASSIGN_OR_RETURN(const std::unique_ptr<Planning> planning, Prepare(request, hardware));
  absl::StatusOr<Trial> found = Search(request, hardware, *planning);
  absl::StatusOr<SimulatedRun> usual = Try(request, request.base, hardware);
  if (!found.ok() && !usual.ok()) {
    return found.status();
  }
  if (!found.ok()) {
    ASSIGN_OR_RETURN(Plan plan, MakePlan(*planning->cost, planning->options));
    return RunPlan{.options = request.base,
                   .is_default = true,
                   .plan = std::move(plan),
                   .predicted = *std::move(usual)};
  }
  const bool is_default = usual.ok() && usual->seconds < kLeastGain * found->tried.run.seconds;
  return RunPlan{.options = is_default ? request.base : std::move(found->tried.options),
                 .is_default = is_default,
                 .plan = std::move(found->plan),
                 .predicted = is_default ? *std::move(usual) : std::move(found->tried.run)};
}

}  // namespace nightshift
