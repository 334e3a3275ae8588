// Runner: the thread that drives the engine. Chooses the model, claims rows that were checked,
// prepares them on its pool, forms the block, sweeps, publishes, and keeps progress durable. It decides; it never waits
// for anything but the engine and the store.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/run_plan.h"
#include "engine/schedule/timeline.h"
#include "kernels/base/clock.h"
#include "server/input/parse_limits.h"
#include "server/metrics/metrics.h"
#include "server/scheduling/model_catalog.h"
#include "server/scheduling/model_session.h"
#include "server/scheduling/model_text.h"
#include "server/scheduling/policy_state.h"
#include "server/scheduling/time_left.h"
#include "server/store/store_actor.h"

namespace nightshift {

struct RunnerOptions {
  EngineOptions engine;  // pack_path and compute_type are set per model and job; the compute type
                         // here is that of jobs which do not name one
  FixedOptions fixed;    // fields of `engine` that no plan changes
  std::optional<HardwareProfile> hardware;  // to plan with; nothing: `engine` holds
  std::string why_no_hardware;              // as PlannerOptions
  std::string stale_hardware;
  std::string refinement_path;
  std::function<int64_t()> available_memory;
  std::string state_directory;              // where input files lie
  // Disk for token ids of prompts that were checked and wait; 0: they are tokenized again.
  int64_t kept_prompt_bytes = int64_t{4} << 30;
  int64_t disk_reserve_bytes = 0;  // as ReadDiskRoom takes it: no ids are kept below it
  int num_tokenizer_threads = 1;
  int64_t max_ready_requests = 512;  // claimed and waiting for a place in the block
  int64_t max_ready_tokens = 4 << 20;
  // Rows among which claims take the longest first, of all jobs together; see ClaimWindow.
  int64_t claim_window_rows = 1 << 16;
  int64_t progress_interval_us = 60'000'000;  // generated ids become durable at the next sweep edge
  int64_t store_retry_interval_us = 1'000'000;  // between writes while the disk is full
  // Between attempts to load a model while the disk has no room for its keys and values, and to find
  // one whose pack is away.
  int64_t load_retry_interval_us = 10'000'000;
  // The first wait before input that could not be read is read again; see InputTroubles.
  int64_t input_retry_interval_us = 1'000'000;
  // While jobs of the same priority wait for another model; see SliceOf.
  int64_t model_slice_us = 1'800'000'000;
  ParseLimits limits;  // as at acceptance
  // While this is true no row runs: rows are given back at the next sweep edge, the model stays.
  std::function<bool()> disk_is_full = [] { return false; };
  // The share of a tenant's jobs together, beside 1 of others. Any thread.
  std::function<double(const std::string& tenant)> tenant_weight =
      [](const std::string& /*tenant*/) { return 1.0; };
  // Shared with all parts of the daemon; by itself the runner counts for nobody.
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();

  // INVALID_ARGUMENT naming the option and its value.
  absl::Status Validate() const;
};

struct RunnerStatus {
  std::string loaded_model;  // empty: none
  std::string device;
  double tokens_per_second = 0;  // prompt and output tokens, over the last sweeps
  int64_t held_requests = 0;
  int64_t max_block_requests = 0;  // that the engine can hold; 0: no model is loaded
  double kv_used_ratio = 0;        // of the memory for keys and values, in the last sweep; 0: idle
  int64_t engine_memory_bytes = 0; // taken from the budget, on device and host together
  // Requests without a result of jobs that may run now: not paused, not held, their time has come.
  int64_t runnable_requests = 0;
  std::string sweep_error;  // why the last sweep failed; empty: it did not
  SweepTimes times;                           // of all sweeps since the model was loaded
  std::string bottleneck;                     // of those: "read 93 %"; empty before the first
  std::shared_ptr<const PolicyState> policy;  // never null
  PlanCounts plan_counts;
  std::map<std::string, std::string> model_waits;  // by model: why it cannot be loaded at present
  // By id, of jobs that run or wait, of models that are or were loaded, as it was at
  // `times_left_us` of the wall clock. Empty while no model is loaded. Never null.
  std::shared_ptr<const std::map<std::string, TimeLeft>> times_left;
  int64_t times_left_us = 0;
};

// A row that is claimed ends in exactly one of: a published result, or given back to the store.
class Runner {
 public:
  // `store`, `catalog` and `clock` must outlive it. RecoverState has run.
  Runner(RunnerOptions options, StoreActor& store, ModelCatalog& catalog, EngineFactory factory,
         const Clock& clock);
  // As Drain.
  ~Runner();

  void Start();
  // Ends the current sweep, publishes what finished, gives the rest back with its progress, and
  // stops the thread. Idempotent; waits.
  void Drain();
  // While held, nothing runs: rows are given back at the next sweep edge, the model is unloaded,
  // and what is in the store waits. Jobs end and expire all the same. Any thread; does not wait.
  void Hold(bool hold);
  // What disk_is_full tells has changed. Any thread; does not wait.
  void Wake();
  RunnerStatus status() const;
  // The plan for another workload of a model than what is queued; runs nothing. Any thread; takes
  // as long as a search. `kv_types` as RunRequest. Without a plan the state says why. Errors: the
  // catalog's, INVALID_ARGUMENT for a workload out of range.
  absl::StatusOr<PolicyState> PlanFor(const ModelKey& key, const WorkloadProfile& workload,
                                      const std::vector<DType>& kv_types) const;
  // Tokenizer, template and limits of a model, shared with what runs. Any thread; reads the pack.
  absl::StatusOr<ModelTextPtr> TextOf(const CatalogModel& model) const;
  // The last steps, at most kMaxTraceSteps, of the model that was loaded last.
  std::vector<StepTimes> timeline() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace nightshift
