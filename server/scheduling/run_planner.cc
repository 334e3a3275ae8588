#include "server/scheduling/run_planner.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "engine/policy/hardware_file.h"
#include "engine/policy/nightshift_cost.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A change of plan computes keys and values again and loads weights: it has to give this much.
constexpr double kLeastGain = 1.1;
// A lane's factor that has moved by so much since the plan was made may be worth another plan.
constexpr double kLearned = 1.25;
// A shorter job is over before another plan for it is found.
constexpr double kLeastPlannedSeconds = 2.0;
// What is left of a budget that could not be had, where nothing says what there is.
constexpr double kTighter = 0.9;
// Lanes that work for less than this in a sweep tell nothing of their rate.
constexpr double kLeastSeconds = 1e-4;
constexpr double kMicro = 1e-6;

LaneSeconds FactorsOf(const ProfileRefinement& refinement) {
  LaneSeconds factors = {};
  for (size_t i = 0; i < kNumLanes; ++i) {
    factors[i] = refinement.Factor(static_cast<LaneId>(i));
  }
  return factors;
}

// "compute 1.31 of 33 sweeps, read 0.95 of 33 sweeps"
std::string FactorsText(const ProfileRefinement& refinement) {
  std::vector<std::string> parts;
  for (size_t i = 0; i < kNumLanes; ++i) {
    const LaneId lane = static_cast<LaneId>(i);
    if (!refinement.recent(lane).empty()) {
      parts.push_back(absl::StrFormat("%s %.3g of %d sweeps", LaneName(lane),
                                      refinement.Factor(lane), refinement.recent(lane).size()));
    }
  }
  return parts.empty() ? "none" : absl::StrJoin(parts, ", ");
}

int64_t Tighter(int64_t budget) {
  return static_cast<int64_t>(kTighter * static_cast<double>(budget));
}

constexpr char kNoModel[] = "no model is loaded; submit a job, and it is planned for";
constexpr char kNoProfile[] =
    "there is no profile of this machine; measure it with `nightshift calibrate` and restart the "
    "daemon; until then its own options hold";

void TakePlan(const RunPlan& plan, const WorkloadProfile& workload, const PackManifest& manifest,
              PolicyState& state) {
  state.plan = plan;
  state.workload = workload;
  state.weights = MatrixType(manifest);
  const WeightPlacement& placement = plan.predicted.memory.weights;
  for (size_t i = 0; i < manifest.tensors.size(); ++i) {
    for (size_t j = 0; j < manifest.tensors[i].shards.size(); ++j) {
      const size_t tier = static_cast<size_t>(placement.tiers[i][j]);
      state.weight_bytes[tier] += static_cast<double>(HostShardBytes(manifest.tensors[i], j));
    }
  }
}

}  // namespace

absl::StatusOr<PolicyState> PlanOtherWork(const std::string& model, const EngineOptions& base,
                                          const FixedOptions& fixed, const PolicyState& present,
                                          const WorkloadProfile& workload,
                                          const std::vector<DType>& kv_types) {
  PolicyState state;
  state.model = model;
  state.compute_type = base.compute_type;
  state.kv_type = base.kv_type;
  state.sparse_attention = base.sparse_attention;
  state.hardware = present.hardware;
  state.stale = present.stale;
  if (state.hardware == nullptr) {
    state.reason = kNoProfile;
    return state;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(base.pack_path));
  const PackManifest& manifest = pack->manifest();
  RETURN_IF_ERROR(workload.Validate(manifest.config.context_tokens));
  int64_t longest = 1;
  for (const WorkloadClass& one : workload.classes) {
    longest = std::max(longest, one.prompt_tokens + one.output_tokens);
  }
  const absl::StatusOr<RunPlan> plan = PlanRun({.manifest = manifest,
                                                .name = model,
                                                .base = base,
                                                .fixed = fixed,
                                                .kv_types = kv_types,
                                                .hardware = *state.hardware,
                                                .workload = workload,
                                                .longest_request_tokens = longest});
  if (absl::IsResourceExhausted(plan.status())) {
    state.reason = std::string(plan.status().message());
    return state;
  }
  RETURN_IF_ERROR(plan.status());
  TakePlan(*plan, workload, manifest, state);
  return state;
}

RunPlanner::RunPlanner(PlannerOptions options)
    : options_(std::move(options)), hardware_(options_.hardware) {
  if (hardware_.has_value() && !options_.refinement_path.empty()) {
    absl::StatusOr<ProfileRefinement> kept = LoadRefinement(options_.refinement_path, *hardware_);
    if (kept.ok()) {
      hardware_->refinement = *std::move(kept);
      LOG(INFO) << "refinement_loaded factors=\"" << FactorsText(hardware_->refinement) << "\"";
    } else if (!absl::IsNotFound(kept.status())) {
      LOG(WARNING) << "refinement_dropped reason=\"" << kept.status().message() << "\"";
    }
  }
  TakeState(WhyNoPlan(kNoModel));
}

EngineOptions RunPlanner::Begin(const std::string& model, const EngineOptions& base,
                                std::span<const QueuedJob> jobs) {
  End();
  model_ = model;
  given_ = base;
  base_ = base;
  jobs_.assign(jobs.begin(), jobs.end());
  if (!hardware_.has_value()) {
    TakeState(WhyNoPlan(""));
    return given_;
  }
  if (std::exchange(was_lost_, false)) {
    Tighten();
  }
  absl::StatusOr<Running> planned = Search();
  if (!planned.ok()) {
    LOG(WARNING) << "not_planned pack=\"" << given_.pack_path << "\" reason=\""
                 << planned.status().message() << "\" action=\"the options of the daemon hold\"";
    TakeState(
        absl::StrCat("no plan was found, the daemon's options hold: ", planned.status().message()));
    return given_;
  }
  ++counts_.plans;
  running_ = *std::move(planned);
  Log("plan_made", *running_);
  TakeState("");
  return running_->plan.options;
}

EngineOptions RunPlanner::LoadRefused(const absl::Status& why) {
  ++counts_.failed_allocations;
  LOG(WARNING) << "plan_refused pack=\"" << given_.pack_path << "\" reason=\"" << why.message()
               << "\"";
  absl::Status gave_up = why;
  if (!is_tight_) {
    absl::StatusOr<Running> planned = SearchForLess();
    if (planned.ok()) {
      running_ = *std::move(planned);
      Log("plan_made_for_less", *running_);
      TakeState("");
      return running_->plan.options;
    }
    gave_up = planned.status();
  }
  running_.reset();
  LOG(WARNING) << "not_planned pack=\"" << given_.pack_path << "\" reason=\"" << gave_up.message()
               << "\" action=\"the options of the daemon hold\"";
  TakeState(absl::StrCat("the engine had no room for the plan, the daemon's options hold: ",
                         gave_up.message()));
  return given_;
}

void RunPlanner::End() {
  running_.reset();
  next_.reset();
  manifest_.reset();
  jobs_.clear();
  workload_ = {};
  is_exact_ = false;
  is_tight_ = false;
  model_.clear();
  pace_ = {};
  TakeState(WhyNoPlan(kNoModel));
}

std::optional<EngineOptions> RunPlanner::Next(std::span<const QueuedJob> jobs,
                                              int64_t held_tokens) {
  if (!running_.has_value()) {
    return std::nullopt;
  }
  const WorkloadProfile now = WorkloadOf(jobs, manifest_->config.context_tokens);
  if (now.classes.empty()) {
    return std::nullopt;
  }
  const bool has_learned = HasLearned();
  if (!has_learned && !HasChanged(workload_, now)) {
    if (!is_exact_ && IsExact(jobs)) {
      jobs_.assign(jobs.begin(), jobs.end());
      PredictAgain("plan_predicted_from_tokens");
    }
    return std::nullopt;
  }
  jobs_.assign(jobs.begin(), jobs.end());
  absl::StatusOr<Running> planned = Search();
  if (!planned.ok()) {
    LOG(WARNING) << "plan_kept reason=\"" << planned.status().message() << "\"";
    running_->factors = FactorsOf(hardware_->refinement);
    return std::nullopt;
  }
  const absl::StatusOr<SimulatedRun> present =
      PredictRun(RequestFor(base_), running_->plan.options);
  const double again_s =
      static_cast<double>(held_tokens) / std::max(1.0, planned->plan.predicted.tokens_per_s);
  if (present.ok() && present->seconds < kLeastGain * (planned->plan.predicted.seconds + again_s)) {
    PredictAgain("plan_kept");
    return std::nullopt;
  }
  next_ = *std::move(planned);
  return next_->plan.options;
}

void RunPlanner::Changed() {
  ++counts_.plans;
  ++counts_.replans;
  running_ = std::exchange(next_, std::nullopt);
  pace_ = {};
  Log("plan_changed", *running_);
  TakeState("");
}

std::optional<EngineOptions> RunPlanner::ChangeRefused(const absl::Status& why) {
  ++counts_.failed_allocations;
  next_.reset();
  if (!is_tight_) {
    LOG(WARNING) << "plan_refused pack=\"" << given_.pack_path << "\" reason=\"" << why.message()
                 << "\"";
    absl::StatusOr<Running> planned = SearchForLess();
    if (planned.ok() &&
        planned->plan.predicted.seconds * kLeastGain < running_->plan.predicted.seconds) {
      next_ = *std::move(planned);
      Log("plan_made_for_less", *next_);
      return next_->plan.options;
    }
  }
  LOG(WARNING) << "plan_kept pack=\"" << given_.pack_path << "\" reason=\"" << why.message()
               << "\" action=\"the plan before holds\"";
  PredictAgain("plan_kept");
  return std::nullopt;
}

void RunPlanner::ChangeLost(const absl::Status& why) {
  ++counts_.failed_allocations;
  was_lost_ = true;
  LOG(WARNING) << "plan_lost pack=\"" << given_.pack_path << "\" reason=\"" << why.message()
               << "\" action=\"the model is loaded again under a plan for less\"";
}

std::optional<PlannedSweep> RunPlanner::Observe(const BlockSweep& sweep, int64_t page_bytes) {
  if (!running_.has_value()) {
    return std::nullopt;
  }
  const SimulatedRun& run = running_->plan.predicted;
  PlannedSweep prediction = {.lanes = {},
                             .wall_seconds = 0.0,
                             .pools = {.device = run.memory.device_bytes,
                                       .host = run.memory.host_bytes,
                                       .kv = run.most_pages.total() * page_bytes},
                             .constraint = ConstraintOf(running_->plan),
                             .requests = running_->workload.requests(),
                             .seconds = run.seconds,
                             .tokens_per_s = run.tokens_per_s};
  const PredictedSweep predicted =
      running_->predictor->Past(sweep.spans, sweep.sampled_tokens, sweep.steps);
  const LaneSeconds& measured = predicted.lanes;
  for (size_t i = 0; i < kNumLanes; ++i) {
    const double observed = kMicro * static_cast<double>(sweep.times.lanes[i].busy_us);
    if (measured[i] >= kLeastSeconds && observed > 0.0) {
      hardware_->refinement.Observe(static_cast<LaneId>(i), measured[i], observed);
      has_learned_anything_ = true;
    }
    prediction.lanes[i] = measured[i] * running_->factors[i];
  }
  prediction.wall_seconds = predicted.stretch * running_->predictor->Bound(prediction.lanes);
  if (sweep.times.wall_us > 0) {
    pace_.Add(prediction.wall_seconds, kMicro * static_cast<double>(sweep.times.wall_us));
  }
  return prediction;
}

void RunPlanner::JobEnded(double time_ratio) {
  constexpr size_t kRecentJobs = 33;
  ++counts_.predicted_jobs;
  counts_.last_time_ratio = time_ratio;
  time_ratios_.push_back(time_ratio);
  if (time_ratios_.size() > kRecentJobs) {
    time_ratios_.pop_front();
  }
  std::vector<double> sorted(time_ratios_.begin(), time_ratios_.end());
  std::sort(sorted.begin(), sorted.end());
  counts_.median_time_ratio = (sorted[sorted.size() / 2] + sorted[(sorted.size() - 1) / 2]) / 2.0;
  Save();
}

void RunPlanner::Save() {
  if (!std::exchange(has_learned_anything_, false)) {
    return;
  }
  TakeState(state_->reason);
  LOG(INFO) << "refinement factors=\"" << FactorsText(hardware_->refinement) << "\"";
  if (options_.refinement_path.empty()) {
    return;
  }
  const absl::Status stored = StoreRefinement(options_.refinement_path, *hardware_);
  if (!stored.ok()) {
    LOG(WARNING) << "refinement_not_kept error=\"" << stored.message() << "\"";
  }
}

std::string RunPlanner::WhyNoPlan(const std::string& otherwise) const {
  if (hardware_.has_value()) {
    return otherwise;
  }
  return options_.why_none.empty() ? kNoProfile : options_.why_none;
}

std::optional<TokenCosts> RunPlanner::token_costs() const {
  return running_.has_value() ? std::optional(running_->costs) : std::nullopt;
}

RunRequest RunPlanner::RequestFor(const EngineOptions& base) const {
  const int64_t context = manifest_->config.context_tokens;
  return RunRequest{.manifest = *manifest_,
                    .name = base.pack_path,
                    .base = base,
                    .fixed = options_.fixed,
                    .hardware = *hardware_,
                    .workload = WorkloadOf(jobs_, context),
                    .longest_request_tokens = LongestRequestTokens(jobs_, context)};
}

absl::StatusOr<RunPlanner::Running> RunPlanner::Search() {
  if (!manifest_.has_value()) {
    ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(base_.pack_path));
    manifest_ = pack->manifest();
  }
  const RunRequest request = RequestFor(base_);
  workload_ = request.workload;
  is_exact_ = IsExact(jobs_);
  ASSIGN_OR_RETURN(RunPlan plan, PlanRun(request));
  Running running = {.plan = std::move(plan),
                     .workload = request.workload,
                     .predictor = nullptr,
                     .factors = {},
                     .costs = {}};
  RETURN_IF_ERROR(Complete(running));
  return running;
}

absl::Status RunPlanner::Complete(Running& running) const {
  HardwareProfile measured = *hardware_;
  measured.refinement = {};
  ASSIGN_OR_RETURN(running.predictor, SweepPredictor::Create(*manifest_, base_.pack_path,
                                                             running.plan.options, measured));
  running.factors = FactorsOf(hardware_->refinement);
  running.costs = CostsOf(running);
  return absl::OkStatus();
}

// Sweeps of prompts and sweeps of decoding a full block, scaled to what the simulation says of both
// together.
TokenCosts RunPlanner::CostsOf(const Running& running) const {
  const EngineOptions& options = running.plan.options;
  const WorkloadProfile& workload = running.workload;
  const double requests = static_cast<double>(std::max<int64_t>(1, workload.requests()));
  const double prompt = std::max(1.0, workload.mean_prompt_tokens());
  const double output = workload.mean_output_tokens();
  const int64_t block = std::min(options.max_block_requests, workload.requests());
  const int64_t chunk = std::max<int64_t>(
      1, std::min(static_cast<int64_t>(prompt),
                  options.prompt_chunk_tokens > 0 ? options.prompt_chunk_tokens : INT64_MAX));
  const auto seconds_each = [&](int64_t count, int64_t first, int64_t tokens, int64_t sampled) {
    std::vector<ComputedSpan> spans;
    for (int64_t i = 0; i < count; ++i) {
      spans.push_back({.batch = i * tokens / options.max_batch_tokens,
                       .first_position = first,
                       .num_tokens = tokens});
    }
    PredictedSweep sweep = running.predictor->Future(spans, sampled);
    for (size_t i = 0; i < kNumLanes; ++i) {
      sweep.lanes[i] *= running.factors[i];
    }
    return sweep.stretch * running.predictor->Bound(sweep.lanes) /
           static_cast<double>(count * tokens);
  };
  const int64_t prompts =
      std::clamp<int64_t>(options.max_sweep_tokens / chunk, 1, std::max<int64_t>(1, block));
  TokenCosts costs = {
      .prompt_seconds = seconds_each(prompts, 0, chunk, 0),
      .output_seconds = seconds_each(block, static_cast<int64_t>(prompt + output / 2.0), 1, block)};
  const double together =
      requests * (prompt * costs.prompt_seconds + output * costs.output_seconds);
  const double scale = together > 0.0 ? running.plan.predicted.seconds / together : 1.0;
  costs.prompt_seconds *= scale;
  costs.output_seconds *= scale;
  return costs;
}

absl::StatusOr<RunPlanner::Running> RunPlanner::SearchForLess() {
  Tighten();
  ASSIGN_OR_RETURN(Running planned, Search());
  ++counts_.plans;
  return planned;
}

// What is there now, as far as that is known and less than what was planned with.
void RunPlanner::Tighten() {
  is_tight_ = true;
  TierOptions& tiers = base_.tiers;
  const int64_t available = options_.available_memory ? options_.available_memory() : INT64_MAX;
  base_.memory_budget_bytes =
      std::max<int64_t>(1, std::min(Tighter(given_.memory_budget_bytes), available));
  tiers.device_budget_bytes = Tighter(given_.tiers.device_budget_bytes);
  if (tiers.disk_budget_bytes > 0) {
    std::error_code error;
    const std::filesystem::space_info space = std::filesystem::space(tiers.spill_folder, error);
    const int64_t free =
        error || space.available > INT64_MAX ? INT64_MAX : static_cast<int64_t>(space.available);
    tiers.disk_budget_bytes = std::min(Tighter(given_.tiers.disk_budget_bytes), Tighter(free));
  }
  LOG(WARNING) << "planning_for_less memory_budget_bytes=" << base_.memory_budget_bytes
               << " device_budget_bytes=" << tiers.device_budget_bytes
               << " disk_budget_bytes=" << tiers.disk_budget_bytes
               << " of=" << given_.memory_budget_bytes << "," << given_.tiers.device_budget_bytes
               << "," << given_.tiers.disk_budget_bytes
               << " available_bytes=" << (options_.available_memory ? available : -1);
}

bool RunPlanner::HasLearned() const {
  if (running_->plan.predicted.seconds < kLeastPlannedSeconds) {
    return false;
  }
  const LaneSeconds now = FactorsOf(hardware_->refinement);
  for (size_t i = 0; i < kNumLanes; ++i) {
    if (std::abs(std::log(now[i] / running_->factors[i])) > std::log(kLearned)) {
      return true;
    }
  }
  return false;
}

void RunPlanner::PredictAgain(const char* event) {
  const RunRequest request = RequestFor(base_);
  workload_ = request.workload;
  is_exact_ = IsExact(jobs_);
  absl::StatusOr<SimulatedRun> again = PredictRun(request, running_->plan.options);
  if (!again.ok()) {
    LOG(WARNING) << "plan_not_predicted reason=\"" << again.status().message() << "\"";
    running_->factors = FactorsOf(hardware_->refinement);
    return;
  }
  running_->plan.predicted = *std::move(again);
  running_->workload = request.workload;
  const absl::Status completed = Complete(*running_);
  if (!completed.ok()) {
    LOG(WARNING) << "plan_not_predicted reason=\"" << completed.message() << "\"";
    return;
  }
  pace_ = {};
  Log(event, *running_);
  TakeState("");
}

void RunPlanner::TakeState(std::string reason) {
  auto state = std::make_shared<PolicyState>();
  state->model = model_;
  state->compute_type = given_.compute_type;
  state->kv_type = given_.kv_type;
  state->sparse_attention = given_.sparse_attention;
  state->reason = std::move(reason);
  state->stale = options_.stale;
  if (hardware_.has_value()) {
    state->hardware = std::make_shared<HardwareProfile>(*hardware_);
  }
  if (running_.has_value()) {
    TakePlan(running_->plan, running_->workload, *manifest_, *state);
  }
  state_ = std::move(state);
}

void RunPlanner::Log(const char* event, const Running& running) const {
  const EngineOptions& options = running.plan.options;
  const SimulatedRun& predicted = running.plan.predicted;
  LOG(INFO) << event << " pack=\"" << options.pack_path
            << "\" requests=" << running.workload.requests()
            << " prompt_tokens=" << running.workload.mean_prompt_tokens()
            << " output_tokens=" << running.workload.mean_output_tokens()
            << " block=" << options.max_block_requests
            << " sweep_tokens=" << options.max_sweep_tokens
            << " predicted_tokens_per_s=" << predicted.tokens_per_s
            << " predicted_s=" << predicted.seconds << " bottleneck=\""
            << LaneName(predicted.bottleneck)
            << "\" default=" << (running.plan.is_default ? "yes" : "no") << " factors=\""
            << FactorsText(hardware_->refinement) << "\"";
}

}  // namespace nightshift
