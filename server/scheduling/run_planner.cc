#include "server/scheduling/run_planner.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A change of plan computes keys and values again and loads weights: it has to give this much.
constexpr double kLeastGain = 1.1;

}  // namespace

RunPlanner::RunPlanner(FixedOptions fixed, std::optional<HardwareProfile> hardware)
    : fixed_(fixed), hardware_(std::move(hardware)) {}

EngineOptions RunPlanner::Begin(const EngineOptions& base, std::span<const QueuedJob> jobs) {
  base_ = base;
  plan_.reset();
  manifest_.reset();
  if (!hardware_.has_value()) {
    return base_;
  }
  absl::StatusOr<RunPlan> planned = Search(jobs);
  if (!planned.ok()) {
    return GiveUp(planned.status());
  }
  plan_ = *std::move(planned);
  Log("plan_made");
  return plan_->options;
}

std::optional<EngineOptions> RunPlanner::Next(std::span<const QueuedJob> jobs,
                                              int64_t held_tokens) {
  if (!plan_.has_value()) {
    return std::nullopt;
  }
  const WorkloadProfile now = WorkloadOf(jobs, manifest_->config.context_tokens);
  if (now.classes.empty() || !HasChanged(workload_, now)) {
    return std::nullopt;
  }
  absl::StatusOr<RunPlan> planned = Search(jobs);
  if (!planned.ok()) {
    LOG(WARNING) << "plan_kept reason=\"" << planned.status().message() << "\"";
    return std::nullopt;
  }
  const absl::StatusOr<SimulatedRun> present = PredictRun(RequestFor(jobs), plan_->options);
  const double again_s =
      static_cast<double>(held_tokens) / std::max(1.0, planned->predicted.tokens_per_s);
  if (present.ok() && present->seconds < kLeastGain * (planned->predicted.seconds + again_s)) {
    plan_->predicted = *present;  // the same options, for what is queued now
    return std::nullopt;
  }
  plan_ = *std::move(planned);
  Log("plan_changed");
  return plan_->options;
}

EngineOptions RunPlanner::GiveUp(const absl::Status& why) {
  LOG(WARNING) << "plan_refused pack=\"" << base_.pack_path << "\" reason=\"" << why.message()
               << "\" action=\"the options of the daemon hold\"";
  plan_.reset();
  return base_;
}

RunRequest RunPlanner::RequestFor(std::span<const QueuedJob> jobs) const {
  const int64_t context = manifest_->config.context_tokens;
  return RunRequest{.manifest = *manifest_,
                    .name = base_.pack_path,
                    .base = base_,
                    .fixed = fixed_,
                    .hardware = *hardware_,
                    .workload = WorkloadOf(jobs, context),
                    .longest_request_tokens = LongestRequestTokens(jobs, context)};
}

absl::StatusOr<RunPlan> RunPlanner::Search(std::span<const QueuedJob> jobs) {
  if (!manifest_.has_value()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(base_.pack_path));
    manifest_ = pack->manifest();
  }
  const RunRequest request = RequestFor(jobs);
  workload_ = request.workload;
  return PlanRun(request);
}

void RunPlanner::Log(const char* event) const {
  const EngineOptions& options = plan_->options;
  LOG(INFO) << event << " pack=\"" << options.pack_path << "\" requests=" << workload_.requests()
            << " block=" << options.max_block_requests
            << " sweep_tokens=" << options.max_sweep_tokens
            << " predicted_tokens_per_s=" << plan_->predicted.tokens_per_s
            << " predicted_s=" << plan_->predicted.seconds << " bottleneck=\""
            << LaneName(plan_->predicted.bottleneck)
            << "\" default=" << (plan_->is_default ? "yes" : "no");
}

}  // namespace nightshift
