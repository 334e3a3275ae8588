// Preflight: checks the rows of jobs before they run, beside the sweeps and also while no engine
// runs: reads, parses, renders and tokenizes each on the preparer's pool, publishes an error where
// one cannot run, keeps its ids, and makes known how far it is and how long the prompts are.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <map>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/dtype.h"
#include "server/metrics/metrics.h"
#include "server/scheduling/input_troubles.h"
#include "server/scheduling/job_context.h"
#include "server/scheduling/kept_prompts.h"
#include "server/scheduling/model_catalog.h"
#include "server/scheduling/model_text.h"
#include "server/scheduling/model_waits.h"
#include "server/scheduling/request_preparer.h"
#include "server/scheduling/wakeup.h"
#include "server/store/store_actor.h"

namespace nightshift {

struct PreflightOptions {
  std::string state_directory;                    // where input files lie
  ComputeType compute_type = ComputeType::kBF16;  // of jobs that do not name one
  int64_t store_retry_interval_us = 1'000'000;    // between writes while the disk is full
  int64_t input_retry_interval_us = 1'000'000;    // as InputTroubles takes it
  std::shared_ptr<Metrics> metrics = std::make_shared<Metrics>();  // as RunnerOptions
};

// Which job's rows are checked next: first those that soon run out of checked rows, then those of
// the highest priority, of these the one with the fewest checked rows that wait, the oldest of
// equals; end() for none. `jobs` in order of age.
std::vector<JobRecord>::const_iterator ChooseJobToCheck(const std::vector<JobRecord>& jobs);

// One thread, which mostly waits. How far a job is checked is durable with the errors of its rows,
// so that a restart goes on where it was. A job whose model is away is left alone until Retry; one whose
// model has no text fails (MODEL_UNAVAILABLE).
class Preflight {
 public:
  // All must outlive it.
  Preflight(PreflightOptions options, StoreActor& store, ModelCatalog& catalog, ModelTexts& texts,
            ModelWaits& waits, KeptPrompts& kept, RequestPreparer& preparer, const Clock& clock);
  // As Stop.
  ~Preflight();
  Preflight(const Preflight&) = delete;
  Preflight& operator=(const Preflight&) = delete;

  void Start();
  // Ends after the rows that were begun; nothing is checked after it. Idempotent; waits.
  void Stop();
  // While held, nothing is checked. Does not wait.
  void Hold(bool hold);
  // Jobs that were left alone are looked at again.
  void Retry();

 private:
  // A job whose rows are being checked.
  struct Job {
    JobContextPtr context;
    ModelTextPtr text;
  };

  void Run();
  // False when nothing was there to do.
  bool Step();
  absl::StatusOr<std::vector<JobRecord>> ReadJobs();
  absl::StatusOr<ModelTextPtr> TextOf(const std::string& model_name);
  absl::StatusOr<Job> Begin(const JobRecord& record);
  // Checks the next rows of a job.
  absl::Status CheckRows(const JobRecord& record, const Job& job);
  // OK when all rows could be read, or cannot be and will not; those fail (DATA_LOSS). UNAVAILABLE
  // when they are to be read again later, DATA_LOSS when the whole input cannot be.
  absl::Status JudgeUnread(const JobRecord& record, const Job& job, std::vector<CheckedRow>& rows);
  absl::Status Save(const JobRecord& record, const Job& job, const std::vector<CheckedRow>& rows,
                    int64_t end_index);
  absl::Status FailJob(const JobRecord& job, const std::string& error);

  const PreflightOptions options_;
  StoreActor& store_;
  ModelCatalog& catalog_;
  ModelTexts& texts_;
  ModelWaits& waits_;
  KeptPrompts& kept_;
  RequestPreparer& preparer_;
  const Clock& clock_;
  Wakeup wakeup_;
  std::atomic<bool> holding_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> retrying_{false};
  std::map<std::string, Job> jobs_;  // by uid; the thread's
  std::set<std::string> waiting_;    // uids of jobs that are left alone; the thread's
  InputTroubles troubles_;           // by uid; the thread's
  const int64_t subscription_;
  std::thread thread_;
};

}  // namespace nightshift
