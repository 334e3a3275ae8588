// RunPlan: the options of an engine for a model, a machine and a workload, with what they are
// predicted to do. Pure. What `nightshiftd` does when a model is loaded and when its queue changes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/model/pack.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/plan.h"
#include "engine/policy/sweep_simulation.h"
#include "engine/policy/workload_profile.h"

namespace nightshift {

// Which fields of the options the user has set: a plan keeps to them.
struct FixedOptions {
  bool max_block_requests = false;
  bool max_sweep_tokens = false;
  bool max_batch_tokens = false;
  bool prompt_chunk_tokens = false;
  bool weights = false;  // weight_budget_bytes, tiers.weights
  bool kv = false;
  bool activations = false;
  bool schedule = false;
  bool buffering = false;
  bool host_attention = false;
};

struct RunRequest {
  const PackManifest& manifest;
  std::string name;    // of the model, in messages
  EngineOptions base;  // pack, compute type and budgets; and what the user has fixed
  FixedOptions fixed;
  // Of keys and values that may be used, in order of preference; empty: the base's only.
  std::vector<DType> kv_types = {};
  const HardwareProfile& hardware;
  WorkloadProfile workload;
  // Every request has to fit: prompt and most output tokens of the largest.
  int64_t longest_request_tokens = 1;
};

struct RunPlan {
  EngineOptions options;
  bool is_default = false;  // the base options are predicted to be as fast as what was found
  Plan plan;                // what was found
  SimulatedRun predicted;   // with `options`
};

// Searches (TryPlans), and runs the base options in virtual time as well: they stay where what was
// found is hardly faster.
// Errors: INVALID_ARGUMENT; RESOURCE_EXHAUSTED when not even the base options hold the model and
// its longest request, with numbers.
absl::StatusOr<RunPlan> PlanRun(const RunRequest& request);

// What the workload would take with these options, whatever the request's base says. Errors: as
// PlanRun.
absl::StatusOr<SimulatedRun> PredictRun(const RunRequest& request, const EngineOptions& options);

}  // namespace nightshift
