// RunPlanner: the options that the loaded model runs with, planned for what is queued.
#pragma once

#include <optional>
#include <span>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/model/pack.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/run_plan.h"
#include "engine/policy/workload_profile.h"
#include "server/scheduling/queue_workload.h"

namespace nightshift {

// One thread. Without a hardware profile it gives the base options and plans nothing.
class RunPlanner {
 public:
  // No plan changes the `fixed` fields of what the daemon was given.
  RunPlanner(FixedOptions fixed, std::optional<HardwareProfile> hardware);

  // Options to load a pack with; `base` are those that the daemon was given, with pack and compute
  // type. The base options when planning is refused, which the log says.
  EngineOptions Begin(const EngineOptions& base, std::span<const QueuedJob> jobs);
  // Other options for the loaded model that are worth what changing to them takes: nothing while
  // the queue is about what was planned for, or when no plan is a tenth faster.
  // `held_tokens`: whose keys and values would have to be computed again.
  std::optional<EngineOptions> Next(std::span<const QueuedJob> jobs, int64_t held_tokens);
  // The engine refused the plan: the base options hold until the next Begin.
  EngineOptions GiveUp(const absl::Status& why);

  // What the loaded model runs under; nothing where it is not planned.
  const std::optional<RunPlan>& plan() const { return plan_; }

 private:
  RunRequest RequestFor(std::span<const QueuedJob> jobs) const;
  absl::StatusOr<RunPlan> Search(std::span<const QueuedJob> jobs);
  void Log(const char* event) const;

  const FixedOptions fixed_;
  const std::optional<HardwareProfile> hardware_;
  EngineOptions base_;  // of the loaded model
  std::optional<PackManifest> manifest_;
  WorkloadProfile workload_;  // that was planned for
  std::optional<RunPlan> plan_;
};

}  // namespace nightshift
