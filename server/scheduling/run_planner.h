// RunPlanner: the options that the loaded model runs with, planned for what is queued; and how the
// plan comes true, sweep by sweep.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/model/pack.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/run_plan.h"
#include "engine/policy/sweep_prediction.h"
#include "engine/policy/workload_profile.h"
#include "server/scheduling/block.h"
#include "server/scheduling/job_reports.h"
#include "server/scheduling/policy_state.h"
#include "server/scheduling/queue_workload.h"
#include "server/scheduling/time_left.h"

namespace nightshift {

struct PlannerOptions {
  FixedOptions fixed;  // fields of what the daemon was given that no plan changes
  std::optional<HardwareProfile> hardware;  // nothing: the options as given hold
  std::string why_none;                     // then, and what to do; empty: it was never measured
  std::string stale;                        // PolicyState::stale
  // What sweeps have shown of the profile lies here between runs of the daemon; empty: nowhere.
  std::string refinement_path;
  // Bytes that this process may still take, asked where an allocation failed; empty: not known.
  std::function<int64_t()> available_memory;
};

// The plan for another workload than what is queued, of a model with this base; `present` gives the
// hardware; `kv_types` as RunRequest. Without a plan the state says why. Errors: the pack's;
// INVALID_ARGUMENT for a workload out of range.
absl::StatusOr<PolicyState> PlanOtherWork(const std::string& model, const EngineOptions& base,
                                          const FixedOptions& fixed, const PolicyState& present,
                                          const WorkloadProfile& workload,
                                          const std::vector<DType>& kv_types = {});

// One thread.
class RunPlanner {
 public:
  explicit RunPlanner(PlannerOptions options);

  // Options to load a pack with; `base` are those that the daemon was given, with pack and compute
  // type. The base options when planning is refused, which the log says.
  EngineOptions Begin(const std::string& model, const EngineOptions& base,
                      std::span<const QueuedJob> jobs);
  // The engine had no room for the options of Begin: the first time a plan for what memory and disk
  // have left now, then the base options.
  EngineOptions LoadRefused(const absl::Status& why);
  // No model is loaded any more.
  void End();

  // Other options for the loaded model that are worth what changing to them takes: nothing while
  // the queue is about what was planned for and rates are what they were, or when no plan is a
  // tenth faster. `held_tokens`: whose keys and values would have to be computed again.
  std::optional<EngineOptions> Next(std::span<const QueuedJob> jobs, int64_t held_tokens);
  // What became of them. Refused: the plan before holds, and the first time there are options that
  // fit what is left now. Lost: the engine is of no use any more; the next Begin plans for that.
  void Changed();
  std::optional<EngineOptions> ChangeRefused(const absl::Status& why);
  void ChangeLost(const absl::Status& why);

  // A sweep under the present plan: what was predicted of it; nothing without a plan. Learns from
  // it. `page_bytes`: of a page in all layers.
  std::optional<PlannedSweep> Observe(const BlockSweep& sweep, int64_t page_bytes);
  // A job has ended: predicted / observed time of its sweeps. Keeps what was learned meanwhile.
  void JobEnded(double time_ratio);
  // Keeps what was learned, where there is something new.
  void Save();

  // What the loaded model runs under; null where it is not planned.
  const RunPlan* plan() const { return running_.has_value() ? &running_->plan : nullptr; }
  // Seconds of a prompt's and of a generated token; nothing where it is not planned.
  std::optional<TokenCosts> token_costs() const;
  const Pace& pace() const { return pace_; }
  const PlanCounts& counts() const { return counts_; }
  // Made anew when it has changed.
  std::shared_ptr<const PolicyState> state() const { return state_; }

 private:
  // A plan with what its sweeps are predicted by.
  struct Running {
    RunPlan plan;
    WorkloadProfile workload;
    std::unique_ptr<SweepPredictor> predictor;  // by the measured rates
    LaneSeconds factors = {};                   // that the plan took those rates times
    TokenCosts costs;
  };

  RunRequest RequestFor(const EngineOptions& base) const;
  absl::StatusOr<Running> Search();
  absl::Status Complete(Running& running) const;
  TokenCosts CostsOf(const Running& running) const;
  // Plans for less, after the engine or the system has refused what was planned.
  absl::StatusOr<Running> SearchForLess();
  void Tighten();
  bool HasLearned() const;
  // The running plan's options for the queue as it is known now.
  void PredictAgain(const char* event);
  void TakeState(std::string reason);
  // That there is no hardware profile; where there is one, `otherwise`.
  std::string WhyNoPlan(const std::string& otherwise) const;
  void Log(const char* event, const Running& running) const;

  const PlannerOptions options_;
  std::optional<HardwareProfile> hardware_;
  bool has_learned_anything_ = false;  // since Save
  std::string model_;
  EngineOptions given_;  // the base of the loaded model
  EngineOptions base_;   // that, or less of it
  bool is_tight_ = false;
  bool was_lost_ = false;
  std::optional<PackManifest> manifest_;
  std::vector<QueuedJob> jobs_;
  WorkloadProfile workload_;  // that was planned for last
  bool is_exact_ = false;     // from tokens, not from bytes
  std::optional<Running> running_;
  std::optional<Running> next_;  // while it is being changed to
  Pace pace_;
  PlanCounts counts_;
  std::deque<double> time_ratios_;  // of the last jobs
  std::shared_ptr<const PolicyState> state_ = std::make_shared<PolicyState>();
};

}  // namespace nightshift
