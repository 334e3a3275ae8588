#include "engine/policy/sweep_simulation.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/memory/kv_layers.h"
#include "engine/model/forward.h"
#include "engine/policy/model_work.h"
#include "engine/policy/request_flow.h"
#include "engine/policy/sweep_timing.h"
#include "engine/policy/work_rates.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kBlocks = 4;
constexpr size_t kMostClasses = 64;
// Visits of a held request by a sweep: what running a job through is bounded by, to about a second.
constexpr double kMostVisits = 3e6;
// What even a single block may take of them, about half a minute, and of memory.
constexpr double kMostVisitsOfBlock = 1e8;
constexpr double kMostRequests = 2'097'152;
// A third of what virtual time in nanoseconds can tell, of all lanes together.
constexpr double kMostSweepSeconds = 1e9;
// Steps that are run, of all kinds of sweeps together.
constexpr double kMostSteps = 1.5e6;

// A sweep of the job.
struct JobSweep {
  SweepLoad load;
  LaneSeconds lanes = {};
  double bound = 0.0;    // seconds of its busiest lane, or of all where nothing overlaps
  int64_t finished = 0;  // requests, once it has ended
  double seconds = 0.0;
};

class Simulation {
 public:
  Simulation(const SimulatedMachine& machine, const EngineOptions& options,
             const WorkloadProfile& workload, MemoryPlan plan)
      : name_(machine.name),
        hardware_name_(machine.hardware.name),
        options_(options),
        workload_(workload),
        plan_(std::move(plan)),
        config_(machine.manifest.config),
        layers_(config_),
        rates_(machine.hardware, options.compute_type),
        work_(WorkOfPlan(machine.manifest, plan_, options)),
        costs_(CostModel(), rates_),
        timing_(plan_, costs_) {}

  absl::StatusOr<SimulatedRun> Run() {
    RETURN_IF_ERROR(RunFlow());
    TimeSweeps();
    return Report();
  }

 private:
  SweepCosts::Model CostModel() const {
    return {.config = config_,
            .work = work_,
            .kv = KvLayoutOf(config_, options_.compute_type, options_.kv_type),
            .sparse_attention = options_.sparse_attention,
            .unified_memory = options_.tiers.unified_memory(),
            .compute_seconds_per_read_byte = 0.0};
  }

  // Requests that the pages hold together, at most.
  int64_t BlockRequests(const KvPageNeeds& needs) const {
    const int64_t known = static_cast<int64_t>(workload_.mean_prompt_tokens());
    const int64_t output = static_cast<int64_t>(workload_.mean_output_tokens());
    const int64_t each =
        std::max<int64_t>(1, needs.ToCommit(std::max<int64_t>(known, 1), output, 0));
    return std::clamp<int64_t>(plan_.kv_pages.total() / each, 1, options_.max_block_requests);
  }

  // Requests that are run through. INVALID_ARGUMENT: a block is too much.
  absl::StatusOr<int64_t> RequestsToRun(const KvPageNeeds& needs) const {
    const int64_t block = BlockRequests(needs);
    const double chunk = static_cast<double>(LongestSpan(options_));
    const double sweeps_each = std::max(
        std::ceil(workload_.mean_prompt_tokens() / chunk) + workload_.mean_output_tokens(), 1.0);
    const double blocks = std::clamp(kMostVisits / (static_cast<double>(block) * sweeps_each), 1.0,
                                     static_cast<double>(kBlocks));
    const int64_t of_blocks = static_cast<int64_t>(std::ceil(blocks * static_cast<double>(block)));
    const int64_t requests = std::min(workload_.requests(), of_blocks);
    const double most = std::min(kMostRequests, kMostVisitsOfBlock / sweeps_each);
    if (static_cast<double>(requests) > most) {
      return absl::InvalidArgumentError(
          absl::StrCat("simulate ", name_, ": a block of ", requests, " requests of ", sweeps_each,
                       " sweeps each; at most ", static_cast<int64_t>(most),
                       " such requests are simulated, so give a smaller block"));
    }
    return requests;
  }

  // OK for a sweep whose time can be told.
  absl::Status CheckTime(const JobSweep& sweep) const {
    double seconds = 0.0;
    for (const double of_lane : sweep.lanes) {
      seconds += of_lane;
    }
    if (seconds <= kMostSweepSeconds) {  // not for NaN
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat("simulate ", name_, ": a sweep of its block takes ", seconds,
                     " s by the rates of the profile ", hardware_name_, "; at most ",
                     kMostSweepSeconds, " s (32 years) are simulated"));
  }

  absl::Status RunFlow() {
    ASSIGN_OR_RETURN(requests_, RequestsToRun(layers_.Needs(LongestSpan(options_))));
    const FlowOptions flow_options{.max_block_requests = options_.max_block_requests,
                                   .limits = {.max_sweep_tokens = options_.max_sweep_tokens,
                                              .prompt_chunk_tokens = options_.prompt_chunk_tokens,
                                              .max_batch_tokens = plan_.executor.max_batch_tokens,
                                              .max_batch_pages = plan_.executor.kv.pages_per_slot},
                                   .schedule = options_.tiers.schedule,
                                   .pages = plan_.kv_pages,
                                   .requests = requests_};
    ASSIGN_OR_RETURN(RequestFlow flow, RequestFlow::Create(workload_, flow_options, layers_));
    while (std::optional<SweepSchedule> schedule = flow.Begin()) {
      JobSweep& sweep = sweeps_.emplace_back();
      sweep.load = costs_.Load(*schedule, flow.held(), plan_.executor);
      sweep.lanes = costs_.SecondsOf(sweep.load);
      RETURN_IF_ERROR(CheckTime(sweep));
      for (const double seconds : sweep.lanes) {
        sweep.bound =
            options_.tiers.overlap ? std::max(sweep.bound, seconds) : sweep.bound + seconds;
      }
      flow.End(*schedule);
      sweep.finished = flow.num_finished();
    }
    evictions_ = flow.num_evictions();
    most_pages_ = flow.most_pages();
    return absl::OkStatus();
  }

  void TimeSweeps() {
    double steps = 1.0;
    for (const JobSweep& sweep : sweeps_) {
      steps = std::max(steps, timing_.NumSteps(sweep.load));
    }
    const size_t most_kinds = std::max<size_t>(4, static_cast<size_t>(kMostSteps / steps));
    std::map<SweepKind, std::vector<size_t>> kinds;
    for (double share = 0.02; kinds.empty() || kinds.size() > most_kinds; share *= 1.5) {
      kinds.clear();
      for (size_t i = 0; i < sweeps_.size(); ++i) {
        const JobSweep& sweep = sweeps_[i];
        kinds[KindOf(sweep.lanes, sweep.bound, sweep.load.batches.size(), share)].push_back(i);
      }
      if (share > 1e6) {
        break;  // they differ in the lanes that work at all
      }
    }
    for (const auto& [kind, members] : kinds) {
      TimeKind(members);
    }
  }

  void TimeKind(const std::vector<size_t>& members) {
    double mean = 0.0;
    for (const size_t i : members) {
      mean += sweeps_[i].bound / static_cast<double>(members.size());
    }
    size_t typical = members.front();
    for (const size_t i : members) {
      if (std::abs(sweeps_[i].bound - mean) < std::abs(sweeps_[typical].bound - mean)) {
        typical = i;
      }
    }
    const double seconds = timing_.Seconds(sweeps_[typical].load);
    for (const size_t i : members) {
      sweeps_[i].seconds = seconds * sweeps_[i].bound / sweeps_[typical].bound;
    }
  }

  // The time at which so many requests have ended.
  double TimeOf(int64_t finished) const {
    double time = 0.0;
    for (const JobSweep& sweep : sweeps_) {
      time += sweep.seconds;
      if (sweep.finished >= finished) {
        break;
      }
    }
    return time;
  }

  SimulatedRun Report() const {
    SimulatedRun run;
    run.simulated_requests = requests_;
    run.simulated_sweeps = static_cast<int64_t>(sweeps_.size());
    run.evictions = evictions_;
    run.memory = plan_;
    run.most_pages = most_pages_;
    for (const JobSweep& sweep : sweeps_) {
      run.simulated_seconds += sweep.seconds;
      for (size_t i = 0; i < kNumLanes; ++i) {
        run.lane_seconds[i] += sweep.lanes[i];
      }
    }
    run.bottleneck =
        static_cast<LaneId>(std::max_element(run.lane_seconds.begin(), run.lane_seconds.end()) -
                            run.lane_seconds.begin());
    const int64_t first = requests_ / 4;
    const int64_t last = requests_ - requests_ / 4;
    run.seconds_per_request =
        first < 1 ? run.simulated_seconds / static_cast<double>(requests_)
                  : (TimeOf(last) - TimeOf(first)) / static_cast<double>(last - first);
    const double requests = static_cast<double>(workload_.requests());
    run.seconds = run.simulated_seconds +
                  (requests - static_cast<double>(requests_)) * run.seconds_per_request;
    run.prompt_tokens_per_s = (requests * workload_.mean_prompt_tokens() +
                               static_cast<double>(workload_.shared_prefix_tokens)) /
                              run.seconds;
    run.output_tokens_per_s = requests * workload_.mean_output_tokens() / run.seconds;
    run.tokens_per_s = run.prompt_tokens_per_s + run.output_tokens_per_s;
    return run;
  }

  const std::string& name_;
  const std::string& hardware_name_;
  const EngineOptions& options_;
  const WorkloadProfile& workload_;
  const MemoryPlan plan_;
  const ModelConfig& config_;
  const KvLayers layers_;
  const WorkRates rates_;
  const ModelWork work_;
  const SweepCosts costs_;
  const SweepTiming timing_;
  int64_t requests_ = 0;
  std::vector<JobSweep> sweeps_;
  int64_t evictions_ = 0;
  KvPages most_pages_;
};

}  // namespace

absl::StatusOr<SimulatedRun> SimulateRun(const SimulatedMachine& machine,
                                         const WorkloadProfile& workload) {
  EngineOptions options = machine.options;
  options.pack_path = machine.name;
  if (options.tiers.disk_budget_bytes > 0 && options.tiers.spill_folder.empty()) {
    options.tiers.spill_folder = "of the plan";
  }
  RETURN_IF_ERROR(options.Validate());
  RETURN_IF_ERROR(ValidateHardwareProfile(machine.hardware));
  RETURN_IF_ERROR(workload.Validate(machine.manifest.config.context_tokens));
  if (options.tiers.unified_memory() != machine.hardware.unified_memory) {
    return absl::InvalidArgumentError(absl::StrCat(
        "simulate ", machine.name, ": the options are for ",
        options.tiers.unified_memory() ? "one memory" : "a device with memory of its own",
        ", the hardware profile ", machine.hardware.name, " is not"));
  }
  WorkloadProfile merged = workload;
  merged.Merge(kMostClasses);
  ASSIGN_OR_RETURN(MemoryPlan plan, PlanMemory(options, machine.manifest, machine.name));
  return Simulation(machine, options, merged, std::move(plan)).Run();
}

}  // namespace nightshift
