#include "server/scheduling/runner.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"
#include "server/input/rpc_error.h"
#include "server/scheduling/block.h"
#include "server/scheduling/claim_window.h"
#include "server/scheduling/claimer.h"
#include "server/scheduling/early_end.h"
#include "server/scheduling/fair_share.h"
#include "server/scheduling/input_troubles.h"
#include "server/scheduling/job_reports.h"
#include "server/scheduling/model_choice.h"
#include "server/scheduling/model_speeds.h"
#include "server/scheduling/model_waits.h"
#include "server/scheduling/output_lengths.h"
#include "server/scheduling/preflight.h"
#include "server/scheduling/publisher.h"
#include "server/scheduling/queue_workload.h"
#include "server/scheduling/request_options.h"
#include "server/scheduling/request_preparer.h"
#include "server/scheduling/run_planner.h"
#include "server/scheduling/sweep_rate.h"
#include "server/scheduling/wakeup.h"

namespace nightshift {
namespace {

// Rows of one claim, and of one write of results of rows that never run: a commit's worth of work
// that still leaves the sweep edge short.
constexpr int64_t kMaxClaimRows = 256;
constexpr int64_t kMaxEndedRows = 1000;
// Fewer free places than this are left until more are free: a commit each would cost more.
constexpr int64_t kLeastClaimRows = 32;
// The wall clock may jump: jobs that wait for a time are looked at so often.
constexpr int64_t kLongestSleepUs = 60'000'000;
// Of text, for rows of which nothing else is known.
constexpr int64_t kBytesPerToken = 4;
// Between estimates of when jobs end: so much, and so many times what the last one took.
constexpr int64_t kEstimateIntervalUs = 200'000;
constexpr int64_t kEstimatesApart = 50;
// Without a plan: of the rate observed, the share that may be wrong.
constexpr double kRateUncertainty = 0.3;
constexpr double kMicro = 1e-6;

absl::Status OutOfRange(const char* option, int64_t value) {
  return absl::InvalidArgumentError(
      absl::StrCat("runner option ", option, " is ", value, "; must be at least 1"));
}

// From where to where a lane moves bytes: a tier, and "in" towards the computation or "out".
std::optional<std::pair<const char*, const char*>> WayOf(LaneId lane) {
  switch (lane) {
    case LaneId::kRead:
      return std::pair("disk", "in");
    case LaneId::kWrite:
      return std::pair("disk", "out");
    case LaneId::kUpload:
      return std::pair("device", "in");
    case LaneId::kDownload:
      return std::pair("device", "out");
    case LaneId::kCompute:
    case LaneId::kHostAttention:
      break;
  }
  return std::nullopt;
}

// A row that goes back as it came: what was saved of it before stays.
RowProgress Untouched(const ClaimedRow& row) {
  return {.job_id = row.job_id, .job_uid = row.job_uid, .index = row.index, .progress = {}};
}

}  // namespace

absl::Status RunnerOptions::Validate() const {
  const std::vector<std::pair<const char*, int64_t>> counts = {
      {"num_tokenizer_threads", num_tokenizer_threads},
      {"max_ready_requests", max_ready_requests},
      {"max_ready_tokens", max_ready_tokens},
      {"claim_window_rows", claim_window_rows},
      {"progress_interval_us", progress_interval_us},
      {"store_retry_interval_us", store_retry_interval_us},
      {"load_retry_interval_us", load_retry_interval_us},
      {"input_retry_interval_us", input_retry_interval_us},
      {"model_slice_us", model_slice_us}};
  for (const auto& [option, value] : counts) {
    if (value < 1) {
      return OutOfRange(option, value);
    }
  }
  return absl::OkStatus();
}

// What the runner's thread owns. Each Step is one sweep edge and the sweep behind it.
class Runner::Loop {
 public:
  Loop(RunnerOptions options, StoreActor& store, ModelCatalog& catalog, EngineFactory factory,
       const Clock& clock)
      : options_(std::move(options)),
        store_(store),
        catalog_(catalog),
        factory_(std::move(factory)),
        clock_(clock),
        publisher_({.retry_interval_us = options_.store_retry_interval_us}, store, clock,
                   *options_.metrics),
        claimer_(publisher_, wakeup_, clock),
        kept_({.directory = options_.state_directory + "/prompts",
               .max_bytes = options_.kept_prompt_bytes,
               .disk_reserve_bytes = options_.disk_reserve_bytes}),
        window_(options_.claim_window_rows, store, kept_, wakeup_),
        preparer_({.num_threads = options_.num_tokenizer_threads,
                   .max_ready_tokens = options_.max_ready_tokens,
                   .limits = options_.limits,
                   .kept = &kept_,
                   .on_ready = [this] { wakeup_.Notify(); }}),
        waits_(options_.load_retry_interval_us, catalog, clock, [this] { wakeup_.Notify(); }),
        preflight_({.state_directory = options_.state_directory,
                    .compute_type = options_.engine.compute_type,
                    .store_retry_interval_us = options_.store_retry_interval_us,
                    .input_retry_interval_us = options_.input_retry_interval_us,
                    .metrics = options_.metrics},
                   store, catalog, texts_, waits_, kept_, preparer_, clock),
        troubles_(options_.input_retry_interval_us),
        subscription_(store.events().Subscribe("", [this] {
          jobs_changed_ = true;
          wakeup_.Notify();
        })) {
    UpdateStatus();
  }

  ~Loop() { store_.events().Unsubscribe(subscription_); }

  void Start() {
    preflight_.Start();
    thread_ = std::thread([this] { Run(); });
  }

  void Hold(bool hold) {
    holding_ = hold;
    preflight_.Hold(hold);
    wakeup_.Notify();
  }

  void Wake() { wakeup_.Notify(); }

  void Drain() {
    draining_ = true;
    publisher_.GiveUp();
    preflight_.Stop();
    wakeup_.Notify();
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  RunnerStatus status() const {
    RunnerStatus status;
    {
      MutexLock lock(mutex_);
      status = status_;
    }
    status.model_waits = waits_.Reasons();
    if (holding_ || options_.disk_is_full()) {
      status.runnable_requests = 0;
    }
    return status;
  }
  absl::StatusOr<PolicyState> PlanFor(const ModelKey& key, const WorkloadProfile& workload,
                                      const std::vector<DType>& kv_types) const {
    ASSIGN_OR_RETURN(const EngineOptions base,
                     ModelSession::OptionsFor(key, options_.engine, catalog_));
    return PlanOtherWork(key.model, base, options_.fixed, *status().policy, workload,
                         kv_types);
  }
  absl::StatusOr<ModelTextPtr> TextOf(const CatalogModel& model) { return texts_.Get(model); }
  std::vector<StepTimes> timeline() const {
    MutexLock lock(mutex_);
    return timeline_.steps();
  }

 private:
  struct ActiveJob {
    JobRecord record;
    JobContextPtr context;
    bool waits_for_other = false;  // which has not ended
  };

  void Run();
  // False when nothing was there to do.
  bool Step();
  // Until something happens or a job's time comes.
  void Sleep(int64_t ticket);

  // --- what the store says ---
  void RefreshJobs();
  const ActiveJob* FindJob(const std::string& job_id) const;
  bool MayRun(const ActiveJob& job) const;
  bool HasWork(const ActiveJob& job) const;
  // Rows that can be claimed, as far as is known.
  bool HasClaimable(const ActiveJob& job) const;
  std::vector<ShareJob> Shares() const;
  // Ends jobs whose time is up, begins with those whose time has come.
  void WatchTimes();
  int64_t NextTime() const;

  // --- jobs that stop or end early ---
  // Forgets a job that is not active any more.
  void EndJob(const std::string& job_id);
  // Gives rows of jobs that may not run at present back.
  bool SuspendJobs();
  bool EndJobs();
  void EndRowsInBlock(const ActiveJob& job);
  // Results of rows of an ending job that wait in the store; UNAVAILABLE: their input is read again
  // later.
  absl::StatusOr<std::vector<FinishedRow>> EndWaiting(const ActiveJob& job);
  void FailJob(const std::string& job_id, const std::string& reason, const absl::Status& error);
  // Fails every job that needs a model which cannot be used.
  void FailJobsOf(const ModelKey& key, const absl::Status& error);

  // --- the model ---
  // Looks for packs that are away when it is time.
  void LookForModels();
  // Whether the job's model is loaded, or may be.
  bool CanHaveModel(const ActiveJob& job) const;
  bool ChooseSession();
  int64_t LoadedUs(const ModelKey& key) const;
  // What is queued for a model, of jobs that may run.
  std::vector<QueuedJob> Queue(const ModelKey& key) const;
  QueuedJob QueuedOf(const ActiveJob& job) const;
  // The session under a plan; under the options as given where the engine refuses the plan.
  absl::StatusOr<std::unique_ptr<ModelSession>> OpenPlanned(const ModelKey& key);
  // At a sweep edge: another plan where the queue has changed so much that one is worth it.
  void PlanAnew();
  void OpenSession(const ModelKey& key);
  // Wrong weights stay wrong: no job of the model is begun until its pack is written anew.
  void MarkIfLost(const ModelKey& key, const absl::Status& error);
  // The engine is of no use after a change of plan: it is made anew, its rows are not at fault.
  void LosePlan(const absl::Status& error);
  // Gives every row in hand back to the store, with its progress and without counting the attempt.
  void GiveAllBack();
  void CloseSession();

  // --- rows in hand ---
  void TakeClaimed();
  void TakePrepared();
  void ClaimAhead();
  bool HasRoomForTokens();
  int64_t FreePlaces();
  bool Sweep();
  void OnSweepFailed(const absl::Status& error);
  void GiveBack(std::vector<RowProgress> rows, bool count_attempt);
  void LetGo(const std::string& job_id, int64_t rows);
  bool PublishFinished();
  void SaveProgressIfDue();
  // Makes rows' progress and what changed in reports durable, without waiting for it.
  void SaveProgress(std::vector<RowProgress> rows);
  void CountSweep(BlockSweep sweep);
  void ReportSweep(const BlockSweep& sweep);
  int64_t RunnableRequests() const;
  void UpdateStatus();
  std::map<std::string, TimeLeft> EstimateTimes();
  // Learns what the loaded model takes, as far as it is known.
  void NoteSpeed();
  // Adds the model that a job needs to the state, if it is not there; its index.
  size_t AddModel(const ModelKey& key, QueueState& state) const;
  struct ModelSize {
    int64_t parameters = 0;
    int64_t context_tokens = 2;
  };
  // Of its pack, if it can be served.
  ModelSize SizeOf(const ModelKey& key) const;

  const RunnerOptions options_;
  StoreActor& store_;
  ModelCatalog& catalog_;
  const EngineFactory factory_;
  const Clock& clock_;

  Wakeup wakeup_;
  std::atomic<bool> draining_{false};
  std::atomic<bool> holding_{false};
  std::atomic<bool> jobs_changed_{true};
  Publisher publisher_;
  Claimer claimer_;
  ModelTexts texts_;
  KeptPrompts kept_;
  ClaimWindow window_;
  RequestPreparer preparer_;
  ModelWaits waits_;
  Preflight preflight_;

  std::vector<ActiveJob> jobs_;  // in the order in which they should run
  int64_t now_us_ = 0;           // wall clock, of this sweep edge
  FairShare share_;
  OutputLengths lengths_;
  InputTroubles troubles_;  // of rows in hand, and of jobs that end
  // When models were loaded last, by the monotonic clock.
  std::map<ModelKey, int64_t> loaded_us_;
  ModelSpeeds speeds_;
  int64_t slice_us_ = 0;  // of session_
  RunPlanner planner_{{.fixed = options_.fixed,
                       .hardware = options_.hardware,
                       .why_none = options_.why_no_hardware,
                       .stale = options_.stale_hardware,
                       .refinement_path = options_.refinement_path,
                       .available_memory = options_.available_memory}};
  EngineUsage usage_;       // of session_, under the present plan
  int64_t page_bytes_ = 0;  // of session_
  double kv_used_ratio_ = 0;  // of its last sweep
  std::string sweep_error_;   // of the last sweep of any
  struct OutputLimits {
    int64_t rows = 0;
    int64_t tokens = 0;
    int64_t longest = 0;
  };
  std::map<std::string, OutputLimits> limits_;  // of rows that were prepared, by job
  std::map<std::string, int64_t> row_bytes_;    // of the input on average, by job
  std::unique_ptr<ModelSession> session_;
  std::unique_ptr<Block> block_;        // of session_
  bool load_again_ = false;             // the last attempt found no room on the disk
  bool look_again_ = false;             // something could not be read in this step
  std::optional<ModelKey> unreadable_;  // its weights could not be read in its last sweep
  std::optional<ModelKey> missed_;      // it was not there for its last load
  std::string claiming_job_;            // whose claim was begun and not taken; empty for none
  // Rows claimed and neither finished nor given back, by job.
  std::map<std::string, int64_t> in_hand_;
  std::vector<FinishedRow> finished_;  // of this sweep edge, in hand until published
  int64_t progress_saved_us_ = 0;
  SweepRate rate_;    // of session_
  SweepTimes times_;  // of session_
  JobReports reports_;

  mutable Mutex mutex_;
  RunnerStatus status_ ABSL_GUARDED_BY(mutex_);
  Timeline timeline_ ABSL_GUARDED_BY(mutex_){kMaxTraceSteps};
  // Of session_; empty before the first sweep.
  std::shared_ptr<const std::map<std::string, TimeLeft>> times_left_ =
      std::make_shared<const std::map<std::string, TimeLeft>>();
  int64_t times_left_us_ = 0;  // wall clock
  int64_t estimated_us_ = 0;   // monotonic clock; 0: not since the model was loaded
  int64_t estimate_us_ = 0;    // that the last estimate took
  const int64_t subscription_;
  std::thread thread_;
};

void Runner::Loop::Run() {
  NameThread("ns-runner");
  while (!draining_) {
    const int64_t ticket = wakeup_.ticket();
    const bool worked = Step();
    if (!publisher_.status().ok()) {
      break;  // the store is lost; who owns it ends the daemon
    }
    if (!worked && !draining_) {
      Sleep(ticket);
    }
  }
  Failpoint("drain_begun");
  GiveAllBack();
  Failpoint("drain_given_back");
  CloseSession();
  const absl::Status status = publisher_.Flush();
  if (status.ok()) {
    RefreshJobs();  // jobs may have ended with what was published last
  }
  LOG(INFO) << "runner_stopped store=\"" << status.message() << "\"";
}

void Runner::Loop::Sleep(int64_t ticket) {
  const int64_t next_us = NextTime();
  const int64_t mono_us = clock_.MonotonicMicros();
  const int64_t retry_us = std::min(troubles_.NextRetry(mono_us), waits_.NextLook());
  if (!load_again_ && !look_again_ && next_us == kNeverUs && retry_us == INT64_MAX) {
    wakeup_.WaitPast(ticket);
    return;
  }
  int64_t left_us = std::clamp<int64_t>(next_us - clock_.WallMicros(), 1, kLongestSleepUs);
  left_us = std::min(left_us, std::max<int64_t>(retry_us - mono_us, 1));
  if (load_again_) {
    left_us = std::min(left_us, options_.load_retry_interval_us);
  }
  if (look_again_) {
    left_us = std::min(left_us, options_.store_retry_interval_us);
  }
  wakeup_.WaitPast(ticket, left_us);
}

bool Runner::Loop::Step() {
  look_again_ = false;
  RefreshJobs();
  WatchTimes();
  bool worked = EndJobs();
  worked = SuspendJobs() || worked;
  LookForModels();
  worked = ChooseSession() || worked;
  TakeClaimed();
  TakePrepared();
  ClaimAhead();
  PlanAnew();
  worked = Sweep() || worked;
  worked = PublishFinished() || worked;
  SaveProgressIfDue();
  return worked;
}

void Runner::Loop::RefreshJobs() {
  if (!jobs_changed_.exchange(false)) {
    return;
  }
  absl::StatusOr<std::vector<JobRecord>> records = store_.store().ActiveJobs();
  if (!records.ok()) {
    jobs_changed_ = true;
    look_again_ = true;
    LOG(ERROR) << "jobs_unreadable error=\"" << records.status().message() << "\"";
    return;
  }
  std::map<std::string, JobContextPtr> known;
  for (ActiveJob& job : jobs_) {
    known[job.record.id] = std::move(job.context);
  }
  jobs_.clear();
  for (JobRecord& record : *records) {
    JobContextPtr context;
    if (const auto found = known.find(record.id); found != known.end()) {
      if (found->second->uid == record.uid) {
        context = std::move(found->second);
      } else {
        EndJob(record.id);  // it was deleted, and its id is another's now
      }
      known.erase(found);
    }
    if (context == nullptr) {
      context = MakeJobContext(record, options_.state_directory, options_.engine.compute_type);
      reports_.Begin(record.id, record.report);
      if (!record.input_file.empty() && record.counts.total > 0) {
        std::error_code error;
        const auto bytes = std::filesystem::file_size(
            std::filesystem::path(options_.state_directory) / record.input_file, error);
        row_bytes_[record.id] = error ? 0 : static_cast<int64_t>(bytes) / record.counts.total;
      }
      lengths_.Begin(record.id, record.counts.succeeded, record.prompt_tokens,
                     record.output_tokens);
    }
    jobs_.push_back({.record = std::move(record), .context = std::move(context)});
  }
  std::set<std::string> uids;
  for (const ActiveJob& job : jobs_) {
    uids.insert(job.record.uid);
  }
  troubles_.Retain(uids);
  for (ActiveJob& job : jobs_) {
    const std::string& after_uid = job.record.after_uid;
    job.waits_for_other = !after_uid.empty() && uids.count(after_uid) != 0;
  }
  for (const auto& [job_id, context] : known) {
    EndJob(job_id);
  }
  UpdateStatus();
}

void Runner::Loop::EndJob(const std::string& job_id) {
  if (block_ != nullptr) {
    const size_t held = block_->TakeJob(job_id).size();  // of a job that was deleted
    if (held > 0) {
      LetGo(job_id, static_cast<int64_t>(held));
    }
  }
  if (const std::optional<double> time_ratio = reports_.End(job_id)) {
    planner_.JobEnded(*time_ratio);
  }
  row_bytes_.erase(job_id);
  limits_.erase(job_id);
  lengths_.End(job_id);
  share_.End(job_id);
  window_.Forget(job_id);
}

void Runner::Loop::WatchTimes() {
  now_us_ = clock_.WallMicros();
  const bool due = std::any_of(jobs_.begin(), jobs_.end(), [&](const ActiveJob& job) {
    const int64_t expire_us = job.record.expire_time_us;
    return job.record.state != JobState::kCancelling && expire_us > 0 && expire_us <= now_us_;
  });
  if (!due) {
    return;
  }
  std::vector<std::string> expired;
  const absl::Status status = publisher_.Write("", [&](JobStore& store) -> absl::Status {
    ASSIGN_OR_RETURN(expired, store.ExpireJobs(now_us_));
    return absl::OkStatus();
  });
  if (!status.ok()) {
    LOG(ERROR) << "jobs_not_expired error=\"" << status.message() << "\"";
    return;
  }
  for (const std::string& job_id : expired) {
    LOG(INFO) << "job_expired job=" << job_id;
    store_.events().Notify(job_id);
  }
  jobs_changed_ = true;
  RefreshJobs();
}

int64_t Runner::Loop::NextTime() const {
  int64_t next_us = kNeverUs;
  for (const ActiveJob& job : jobs_) {
    if (job.record.state == JobState::kCancelling) {
      continue;
    }
    if (job.record.expire_time_us > 0) {
      next_us = std::min(next_us, job.record.expire_time_us);
    }
    if (IsRunnable(job.record.state)) {
      next_us = std::min(next_us, job.context->calendar.NextChange(now_us_));
    }
  }
  return next_us;
}

const Runner::Loop::ActiveJob* Runner::Loop::FindJob(const std::string& job_id) const {
  const auto found = std::find_if(jobs_.begin(), jobs_.end(),
                                  [&](const ActiveJob& job) { return job.record.id == job_id; });
  return found == jobs_.end() ? nullptr : &*found;
}

bool Runner::Loop::MayRun(const ActiveJob& job) const {
  return !holding_ && !options_.disk_is_full() && IsRunnable(job.record.state) &&
         !job.waits_for_other && job.context->calendar.MayRun(now_us_);
}

bool Runner::Loop::HasWork(const ActiveJob& job) const {
  // While the first rows are checked the model is loaded, but for a job that may be refused.
  const bool has_rows =
      job.context->rejects_invalid ? HasClaimable(job) : job.record.counts.pending > 0;
  return MayRun(job) && (has_rows || in_hand_.count(job.record.id) != 0 ||
                         job.record.id == claiming_job_);
}

bool Runner::Loop::HasClaimable(const ActiveJob& job) const {
  const JobRecord& record = job.record;
  const int64_t unchecked = record.counts.total - record.checked;
  return record.counts.pending > unchecked && (unchecked == 0 || !job.context->rejects_invalid);
}

std::vector<ShareJob> Runner::Loop::Shares() const {
  std::vector<ShareJob> shares;
  const int64_t now_us = clock_.MonotonicMicros();
  for (const ActiveJob& job : jobs_) {
    shares.push_back({.id = job.record.id,
                      .tenant = job.record.tenant,
                      .priority = job.record.priority,
                      .tenant_weight = options_.tenant_weight(job.record.tenant),
                      .wants = MayRun(job) && HasClaimable(job) &&
                               troubles_.WaitUntil(job.record.uid, now_us) == 0 &&
                               job.context->key == session_->key});
  }
  return shares;
}

bool Runner::Loop::EndJobs() {
  std::vector<std::pair<std::string, absl::Status>> unreadable;
  for (const ActiveJob& job : jobs_) {
    if (job.record.state != JobState::kCancelling) {
      if (IsRunnable(job.record.state) && !job.context->status.ok()) {
        unreadable.emplace_back(job.record.id, job.context->status);
      }
      continue;
    }
    EndRowsInBlock(job);
    if (job.record.counts.pending == 0 ||
        troubles_.WaitUntil(job.record.uid, clock_.MonotonicMicros()) > 0) {
      continue;
    }
    // What was published before must not be listed again.
    if (!publisher_.Flush().ok()) {
      return false;
    }
    absl::StatusOr<std::vector<FinishedRow>> rows = EndWaiting(job);
    if (absl::IsUnavailable(rows.status())) {
      continue;  // its input is read again later
    }
    if (!rows.ok()) {
      look_again_ = true;
      LOG(ERROR) << "job_end job=" << job.record.id << " error=\"" << rows.status().message()
                 << "\"";
    } else if (!rows->empty()) {
      publisher_.Publish(*std::move(rows), reports_.TakeChanged());
      return true;  // one piece at a time: the sweeps of others go on between
    }
  }
  for (const auto& [job_id, status] : unreadable) {
    FailJob(job_id, reason::kRecordCorrupt, status);
  }
  return !unreadable.empty();
}

absl::StatusOr<std::vector<FinishedRow>> Runner::Loop::EndWaiting(const ActiveJob& job) {
  const auto end = [&](bool may_try_again) {
    return EndWaitingRows(store_.store(), job.record, *job.context, kMaxEndedRows, options_.limits,
                          may_try_again);
  };
  // A job that fails may do so for its input.
  absl::StatusOr<std::vector<FinishedRow>> rows = end(job.record.end_state != JobState::kFailed);
  if (!absl::IsUnavailable(rows.status())) {
    return rows;
  }
  const absl::Status judged = troubles_.Judge(job.record.uid, kAllRows, rows.status(),
                                              clock_.MonotonicMicros());
  return absl::IsUnavailable(judged) ? rows : end(/*may_try_again=*/false);
}

bool Runner::Loop::SuspendJobs() {
  if (holding_ && session_ != nullptr) {
    GiveAllBack();
    CloseSession();
    return true;
  }
  if (block_ == nullptr) {
    return false;
  }
  std::vector<RowProgress> back;
  for (const auto& [job_id, rows] : in_hand_) {
    const ActiveJob* job = FindJob(job_id);
    if (job != nullptr && job->record.state != JobState::kCancelling && !MayRun(*job)) {
      for (const BlockRow& row : block_->TakeJob(job_id)) {
        back.push_back(block_->ProgressOf(row));
      }
    }
  }
  GiveBack(std::move(back), /*count_attempt=*/false);
  return false;
}

void Runner::Loop::EndRowsInBlock(const ActiveJob& job) {
  if (block_ == nullptr || in_hand_.count(job.record.id) == 0) {
    return;
  }
  for (const BlockRow& row : block_->TakeJob(job.record.id)) {
    finished_.push_back(EndRowEarly(job.record, row.header));
  }
}

void Runner::Loop::FailJob(const std::string& job_id, const std::string& reason,
                           const absl::Status& error) {
  LOG(ERROR) << "job_failed job=" << job_id << " reason=" << reason << " error=\""
             << error.message() << "\"";
  const std::string stored = SerializeJobError(reason, error);
  const int64_t now_us = clock_.WallMicros();
  const JobRecord& job = FindJob(job_id)->record;
  const absl::Status status = publisher_.Write(
      job_id, [&](JobStore& store) { return nightshift::FailJob(store, job, stored, now_us); });
  if (!status.ok()) {
    LOG(ERROR) << "job_fail_refused job=" << job_id << " error=\"" << status.message() << "\"";
  }
}

void Runner::Loop::FailJobsOf(const ModelKey& key, const absl::Status& error) {
  std::vector<std::string> job_ids;
  for (const ActiveJob& job : jobs_) {
    if (IsRunnable(job.record.state) && job.context->key == key) {
      job_ids.push_back(job.record.id);
    }
  }
  for (const std::string& job_id : job_ids) {
    FailJob(job_id, reason::kModelUnavailable, error);
  }
}

void Runner::Loop::LookForModels() {
  if (waits_.NextLook() > clock_.MonotonicMicros()) {
    return;
  }
  std::set<std::string> needed;
  for (const ActiveJob& job : jobs_) {
    if (job.record.state != JobState::kCancelling) {
      needed.insert(job.context->key.model);
    }
  }
  if (waits_.Look(needed)) {
    preflight_.Retry();
  }
}

bool Runner::Loop::CanHaveModel(const ActiveJob& job) const {
  const ModelKey& key = job.context->key;
  return (session_ != nullptr && session_->key == key) || !waits_.IsNoted(key.model);
}

bool Runner::Loop::ChooseSession() {
  std::vector<JobDemand> demand;
  for (const ActiveJob& job : jobs_) {
    if (job.context->status.ok()) {
      demand.push_back({.key = job.context->key,
                        .priority = job.record.priority,
                        .has_work = HasWork(job) && CanHaveModel(job),
                        .model_loaded_us = LoadedUs(job.context->key)});
    }
  }
  const std::optional<ModelKey> loaded =
      session_ == nullptr ? std::nullopt : std::optional(session_->key);
  const bool slice_is_over =
      loaded.has_value() && clock_.MonotonicMicros() - LoadedUs(*loaded) >= slice_us_;
  const std::optional<ModelKey> chosen = ChooseModel(demand, loaded, slice_is_over);
  if (chosen == loaded) {
    load_again_ = false;
    waits_.ClearLoad();
    return false;
  }
  if (!catalog_.Find(chosen->model).ok() && waits_.IsAway(chosen->model)) {
    return true;  // another model may have its turn
  }
  GiveAllBack();
  CloseSession();
  OpenSession(*chosen);
  return !load_again_;
}

int64_t Runner::Loop::LoadedUs(const ModelKey& key) const {
  const auto found = loaded_us_.find(key);
  return found == loaded_us_.end() ? 0 : found->second;
}

std::vector<QueuedJob> Runner::Loop::Queue(const ModelKey& key) const {
  std::vector<QueuedJob> queue;
  for (const ActiveJob& job : jobs_) {
    if (job.context->key == key && MayRun(job)) {
      queue.push_back(QueuedOf(job));
    }
  }
  return queue;
}

QueuedJob Runner::Loop::QueuedOf(const ActiveJob& job) const {
  const JobRecord& record = job.record;
  const v1::SamplingOptions& sampling = job.context->spec.sampling();
  QueuedJob queued{.rows = record.counts.pending + record.counts.running,
                   .choices = std::max<int64_t>(1, sampling.num_choices()),
                   .finished_rows = record.counts.succeeded,
                   .finished_prompt_tokens = record.prompt_tokens,
                   .finished_output_tokens = record.output_tokens,
                   .max_output_tokens = sampling.has_max_output_tokens()
                                            ? sampling.max_output_tokens()
                                            : kDefaultMaxOutputTokens,
                   .may_end_early = !sampling.ignore_eos()};
  if (record.checked_prompts > 0) {
    queued.checked_rows = record.checked_prompts;
    queued.checked_tokens = record.checked_prompt_tokens;
    queued.longest_prompt = record.longest_prompt_tokens;
    queued.all_checked = record.checked == record.counts.total;
  }
  if (const auto found = limits_.find(record.id); found != limits_.end()) {
    queued.limited_rows = found->second.rows;
    queued.limit_tokens = found->second.tokens;
    queued.longest_limit = found->second.longest;
  }
  if (const auto found = row_bytes_.find(record.id); found != row_bytes_.end()) {
    queued.row_bytes = found->second;
  }
  return queued;
}

absl::StatusOr<std::unique_ptr<ModelSession>> Runner::Loop::OpenPlanned(const ModelKey& key) {
  ASSIGN_OR_RETURN(const EngineOptions base,
                   ModelSession::OptionsFor(key, options_.engine, catalog_));
  const EngineOptions options = planner_.Begin(key.model, base, Queue(key));
  absl::StatusOr<std::unique_ptr<ModelSession>> session =
      ModelSession::Open(key, options, catalog_, texts_, factory_);
  const auto has_no_room = [&] {
    const RunPlan* plan = planner_.plan();
    return plan != nullptr &&
           (absl::IsResourceExhausted(session.status()) ||
            (absl::IsUnavailable(session.status()) && plan->options.tiers.disk_budget_bytes > 0));
  };
  while (has_no_room()) {
    session = ModelSession::Open(key, planner_.LoadRefused(session.status()), catalog_, texts_, factory_);
  }
  if (!session.ok()) {
    planner_.End();
  }
  return session;
}

void Runner::Loop::PlanAnew() {
  if (block_ == nullptr || planner_.plan() == nullptr) {
    return;
  }
  std::optional<EngineOptions> options = planner_.Next(Queue(session_->key), block_->held_tokens());
  while (options.has_value()) {
    const absl::Status applied = block_->ApplyPlan(*options);
    if (applied.ok()) {
      planner_.Changed();
      usage_ = session_->engine->Usage();
      return;
    }
    if (!absl::IsResourceExhausted(applied) && !absl::IsInvalidArgument(applied)) {
      LosePlan(applied);
      return;
    }
    options = planner_.ChangeRefused(applied);
  }
}

void Runner::Loop::LosePlan(const absl::Status& error) {
  planner_.ChangeLost(error);
  GiveAllBack();
  CloseSession();
  jobs_changed_ = true;
}

void Runner::Loop::OpenSession(const ModelKey& key) {
  const int64_t start_us = clock_.MonotonicMicros();
  absl::StatusOr<std::unique_ptr<ModelSession>> session = OpenPlanned(key);
  load_again_ = absl::IsUnavailable(session.status());
  if (load_again_) {
    LOG(WARNING) << "model_waits model=" << key.model
                 << " retry_us=" << options_.load_retry_interval_us << " reason=\""
                 << session.status().message() << "\"";
    waits_.NoteLoad(key.model, session.status());
    return;
  }
  waits_.ClearLoad();
  if (!session.ok()) {
    // One that was not there for the load and is there now may have come back between the two.
    const bool came_back = absl::IsNotFound(session.status()) && missed_ != key;
    missed_ = came_back ? std::optional(key) : std::nullopt;
    if (waits_.IsAway(key.model) || came_back) {
      return;
    }
    MarkIfLost(key, session.status());
    FailJobsOf(key, session.status());
    return;
  }
  Failpoint("model_loaded");
  missed_.reset();
  preflight_.Retry();
  session_ = *std::move(session);
  block_ = std::make_unique<Block>(*session_, lengths_, clock_, *options_.metrics);
  options_.metrics->model_loads.Increment();
  progress_saved_us_ = clock_.MonotonicMicros();
  loaded_us_[key] = progress_saved_us_;
  speeds_.Loaded(key, SizeOf(key).parameters,
                 kMicro * static_cast<double>(progress_saved_us_ - start_us));
  slice_us_ = SliceOf(options_.model_slice_us, progress_saved_us_ - start_us);
  rate_ = SweepRate();
  times_ = SweepTimes();
  kv_used_ratio_ = 0;
  usage_ = session_->engine->Usage();
  const EngineInfo& info = session_->engine->info();
  page_bytes_ = info.kv_budget_bytes / std::max<int64_t>(1, info.kv_budget_pages);
  {
    MutexLock lock(mutex_);
    timeline_ = Timeline(kMaxTraceSteps);
  }
  UpdateStatus();
  LOG(INFO) << "model_loaded model=" << key.model
            << " mode=" << session_->engine->info().numeric_mode
            << " load_us=" << clock_.MonotonicMicros() - start_us;
}

void Runner::Loop::MarkIfLost(const ModelKey& key, const absl::Status& error) {
  if (absl::IsDataLoss(error)) {
    LOG(ERROR) << "model_unusable model=" << key.model << " error=\"" << error.message() << "\"";
    catalog_.MarkUnusable(key.model, error);
  }
}

void Runner::Loop::CloseSession() {
  window_.Clear();
  planner_.Save();
  planner_.End();
  block_.reset();
  session_.reset();
  times_left_ = std::make_shared<const std::map<std::string, TimeLeft>>();
  estimated_us_ = 0;
  UpdateStatus();
}

void Runner::Loop::GiveAllBack() {
  PublishFinished();
  claimer_.Wait();
  TakeClaimed();
  std::vector<RowProgress> rows;
  for (const RowTask& task : preparer_.TakeQueued()) {
    rows.push_back(Untouched(task.row));
  }
  preparer_.WaitUntilIdle();
  for (const PreparedRow& prepared : preparer_.TakeReady()) {
    rows.push_back(Untouched(prepared.row));
  }
  if (block_ != nullptr) {
    for (const BlockRow& row : block_->TakeAll()) {
      rows.push_back(block_->ProgressOf(row));
    }
  }
  GiveBack(std::move(rows), /*count_attempt=*/false);
  SaveProgress({});
}

void Runner::Loop::GiveBack(std::vector<RowProgress> rows, bool count_attempt) {
  if (rows.empty()) {
    return;
  }
  // One write a job: each is told of its change.
  std::map<std::string, std::vector<RowProgress>> by_job;
  for (RowProgress& row : rows) {
    by_job[row.job_id].push_back(std::move(row));
  }
  for (const auto& entry : by_job) {
    const std::string& job_id = entry.first;
    const std::vector<RowProgress>& of_job = entry.second;
    const absl::Status status = publisher_.Write(
        job_id, [&](JobStore& store) { return store.Unclaim(of_job, count_attempt); });
    if (!status.ok()) {
      LOG(WARNING) << "rows_not_given_back job=" << job_id << " rows=" << of_job.size()
                   << " error=\"" << status.message() << "\"";
    }
    LetGo(job_id, static_cast<int64_t>(of_job.size()));
    if (in_hand_.count(job_id) == 0) {
      share_.Return(job_id);
    }
  }
}

void Runner::Loop::TakeClaimed() {
  for (ClaimAnswer& answer : claimer_.TakeAnswers()) {
    claiming_job_.clear();
    window_.PutBack(answer.job_id, answer.left);
    if (!answer.status.ok()) {
      LOG(WARNING) << "claim_refused job=" << answer.job_id << " error=\""
                   << answer.status.message() << "\"";
      jobs_changed_ = true;
      publisher_.WaitToRetry();
      continue;
    }
    const ActiveJob* job = FindJob(answer.job_id);
    if (job == nullptr || answer.rows.empty()) {
      continue;  // deleted meanwhile, or somebody ended it
    }
    in_hand_[answer.job_id] += static_cast<int64_t>(answer.rows.size());
    options_.metrics->attempts.Increment(static_cast<double>(answer.rows.size()));
    if (answer.rows[0].job_uid != job->record.uid) {  // deleted meanwhile, and submitted anew
      std::vector<RowProgress> back;
      std::transform(answer.rows.begin(), answer.rows.end(), std::back_inserter(back), Untouched);
      GiveBack(std::move(back), /*count_attempt=*/false);
      continue;
    }
    const std::vector<ShareJob> shares = Shares();
    const auto chosen = static_cast<size_t>(job - jobs_.data());
    std::vector<RowTask> tasks;
    for (ClaimedRow& row : answer.rows) {
      const double tokens =
          lengths_.MeanTokens(answer.job_id, static_cast<double>(row.length / kBytesPerToken + 1));
      tasks.push_back({.job = job->context,
                       .text = session_->text,
                       .row = std::move(row),
                       .share_tag = share_.Take(shares, chosen, tokens)});
    }
    preparer_.Push(std::move(tasks));
  }
}

void Runner::Loop::TakePrepared() {
  if (!HasRoomForTokens()) {
    return;
  }
  std::vector<RowProgress> back;
  std::map<std::string, absl::Status> unreadable;  // jobs whose input cannot be opened
  for (PreparedRow& prepared : preparer_.TakeReady()) {
    const std::string& job_id = prepared.row.job_id;
    const ActiveJob* job = FindJob(job_id);
    if (job == nullptr || job->context != prepared.job) {
      LetGo(job_id, 1);  // deleted meanwhile
    } else if (job->record.state == JobState::kCancelling && !absl::IsUnavailable(prepared.status)) {
      finished_.push_back(EndRowEarly(job->record, prepared.header));
    } else if (!MayRun(*job)) {
      back.push_back(Untouched(prepared.row));
    } else if (absl::IsUnavailable(prepared.status)) {
      const absl::Status judged = troubles_.Judge(job->record.uid, prepared.row.index, prepared.status,
                                                  clock_.MonotonicMicros());
      if (!absl::IsUnavailable(judged) && job->context->input->is_open()) {
        finished_.push_back(FailRow(*prepared.job, prepared.header, judged));
        continue;
      }
      back.push_back(Untouched(prepared.row));
      if (!absl::IsUnavailable(judged)) {
        unreadable.try_emplace(job_id, judged);
      }
    } else if (!prepared.status.ok()) {
      finished_.push_back(FailRow(*prepared.job, prepared.header, prepared.status));
    } else {
      troubles_.Succeeded(job->record.uid, prepared.row.index);
      OutputLimits& limits = limits_[job_id];
      const int64_t most = prepared.request.sampling.max_output_tokens;
      ++limits.rows;
      limits.tokens += most;
      limits.longest = std::max(limits.longest, most);
      block_->Add(std::move(prepared));
    }
  }
  GiveBack(std::move(back), /*count_attempt=*/false);
  for (const auto& [job_id, status] : unreadable) {
    FailJob(job_id, reason::kRecordCorrupt, status);
  }
}

bool Runner::Loop::HasRoomForTokens() {
  return block_ != nullptr && block_->waiting_tokens() < options_.max_ready_tokens;
}

int64_t Runner::Loop::FreePlaces() {
  return options_.max_ready_requests - preparer_.num_rows() - block_->num_waiting();
}

void Runner::Loop::ClaimAhead() {
  if (block_ == nullptr || claimer_.in_flight()) {
    return;
  }
  const int64_t free_places = FreePlaces();
  if (free_places < std::clamp<int64_t>(options_.max_ready_requests / 4, 1, kLeastClaimRows)) {
    return;
  }
  const std::vector<ShareJob> shares = Shares();
  const std::optional<size_t> next = share_.Next(shares);
  if (!next.has_value()) {
    return;
  }
  const ActiveJob& job = jobs_[*next];
  const auto num_jobs = std::count_if(shares.begin(), shares.end(),
                                      [](const ShareJob& share) { return share.wants; });
  window_.LookAhead(job.context, job.record.checked, session_->text->digest, lengths_, num_jobs);
  const int64_t limit = std::min(free_places, kMaxClaimRows);
  if (window_.MustWait(job.record.id, limit)) {
    return;
  }
  claiming_job_ = job.record.id;
  claimer_.Begin(claiming_job_, limit, window_.Take(claiming_job_, limit));
}

bool Runner::Loop::Sweep() {
  if (block_ == nullptr) {
    return false;
  }
  // Before rows join: those that wait have no part in it.
  if (const absl::Status health = session_->engine->Health(); !health.ok()) {
    OnSweepFailed(health);
    return true;
  }
  // A first sweep of one row costs as much as one of a whole block: wait for those that come.
  const bool more_come = preparer_.num_rows() > 0 && HasRoomForTokens() &&
                         block_->num_waiting() < session_->engine->info().max_block_requests;
  if (block_->num_held() == 0 && more_come) {
    return false;
  }
  block_->Admit(finished_);
  share_.Serve(block_->served_tag());
  if (block_->num_held() == 0) {
    return false;
  }
  absl::StatusOr<BlockSweep> sweep = block_->Sweep(finished_);
  if (!sweep.ok()) {
    OnSweepFailed(sweep.status());
    return true;
  }
  if (unreadable_ == session_->key) {
    unreadable_.reset();
  }
  Failpoint("sweep_done");
  CountSweep(*std::move(sweep));
  return true;
}

void Runner::Loop::OnSweepFailed(const absl::Status& error) {
  LOG(ERROR) << "sweep_failed model=" << session_->key.model << " requests=" << block_->num_held()
             << " error=\"" << error.message() << "\"";
  options_.metrics->sweep_failures.Increment();
  sweep_error_ = std::string(error.message());
  // Weights that cannot be read twice are no fault of a row: the jobs of the model fail.
  const ModelKey key = session_->key;
  const bool lost_weights = absl::IsDataLoss(error) || absl::IsFailedPrecondition(error);
  const bool is_unusable = lost_weights && unreadable_ == key;
  unreadable_ = lost_weights ? std::optional(key) : std::nullopt;
  std::vector<RowProgress> again;
  for (const BlockRow& row : block_->TakeHeld()) {
    if (lost_weights || row.attempt < row.job->max_attempts) {
      again.push_back(block_->ProgressOf(row));
      continue;
    }
    const absl::Status exhausted = MakeError(
        absl::StatusCode::kInternal, reason::kAttemptsExhausted,
        absl::StrCat("the engine failed in all ", row.attempt,
                     " attempts that held this request; the last time: ", error.message()),
        {{"attempts", absl::StrCat(row.attempt)}});
    finished_.push_back(FailRow(*row.job, row.header, exhausted));
    options_.metrics->poisoned.Increment();
  }
  GiveBack(std::move(again), /*count_attempt=*/true);
  GiveAllBack();
  CloseSession();
  if (is_unusable && !waits_.IsAway(key.model)) {
    MarkIfLost(key, error);
    FailJobsOf(key, error);
  }
  jobs_changed_ = true;
}

void Runner::Loop::LetGo(const std::string& job_id, int64_t rows) {
  const auto found = in_hand_.find(job_id);
  CHECK(found != in_hand_.end() && found->second >= rows);
  found->second -= rows;
  if (found->second == 0) {
    in_hand_.erase(found);
  }
}

bool Runner::Loop::PublishFinished() {
  if (finished_.empty()) {
    return false;
  }
  for (const FinishedRow& row : finished_) {
    LetGo(row.job_id, 1);
  }
  publisher_.Publish(std::exchange(finished_, {}), reports_.TakeChanged());
  return true;
}

void Runner::Loop::SaveProgressIfDue() {
  const int64_t now_us = clock_.MonotonicMicros();
  if (block_ == nullptr || now_us - progress_saved_us_ < options_.progress_interval_us) {
    return;
  }
  progress_saved_us_ = now_us;
  SaveProgress(block_->Progress());
  planner_.Save();
}

void Runner::Loop::SaveProgress(std::vector<RowProgress> rows) {
  std::vector<JobReport> reports = reports_.TakeChanged();
  if (rows.empty() && reports.empty()) {
    return;
  }
  publisher_.Submit(
      "",
      [rows = std::move(rows), reports = std::move(reports)](JobStore& store) -> absl::Status {
        const absl::Status saved = store.SaveReports(reports);
        return saved.ok() ? store.SaveProgress(rows) : saved;
      },
      [](const absl::Status& status) {
        if (!status.ok()) {
          LOG(WARNING) << "progress_not_saved error=\"" << status.message() << "\"";
        }
      });
}

void Runner::Loop::CountSweep(BlockSweep sweep) {
  ReportSweep(sweep);
  sweep_error_.clear();
  const int64_t kv_pages = session_->engine->info().kv_budget_pages;
  kv_used_ratio_ =
      kv_pages > 0 ? static_cast<double>(sweep.kv_pages) / static_cast<double>(kv_pages) : 0.0;
  if (sweep.tokens > 0) {
    rate_.Add(clock_.MonotonicMicros(), sweep.tokens);
  }
  times_.Add(sweep.times);
  reports_.Add(sweep.job_ids, {.times = sweep.times,
                               .tokens = sweep.tokens,
                               .pools = {.device = usage_.device_memory_bytes,
                                         .host = usage_.memory_bytes,
                                         .kv = sweep.kv_pages * page_bytes_},
                               .planned = planner_.Observe(sweep, page_bytes_)});
  {
    MutexLock lock(mutex_);
    timeline_.Add(sweep.steps);
  }
  UpdateStatus();
}

void Runner::Loop::ReportSweep(const BlockSweep& sweep) {
  Metrics& metrics = *options_.metrics;
  const auto seconds = [](int64_t micros) { return kMicro * static_cast<double>(micros); };
  metrics.sweep_seconds.Observe(seconds(sweep.times.wall_us));
  metrics.prompt_tokens.Increment(static_cast<double>(sweep.tokens - sweep.sampled_tokens));
  metrics.output_tokens.Increment(static_cast<double>(sweep.sampled_tokens));
  metrics.cached_prompt_tokens.Increment(static_cast<double>(sweep.shared_tokens));
  for (size_t i = 0; i < kNumLanes; ++i) {
    const auto lane = static_cast<LaneId>(i);
    const LaneTimes& times = sweep.times.of(lane);
    metrics.LaneBusySeconds(LaneName(lane)).Increment(seconds(times.busy_us));
    metrics.LaneWaitSeconds(LaneName(lane)).Increment(seconds(times.waited_us));
    if (const auto way = WayOf(lane)) {
      metrics.OffloadBytes(way->first, way->second).Increment(static_cast<double>(times.bytes));
    }
  }
}

int64_t Runner::Loop::RunnableRequests() const {
  int64_t requests = 0;
  for (const ActiveJob& job : jobs_) {
    if (MayRun(job)) {
      requests += job.record.counts.pending + job.record.counts.running;
    }
  }
  return requests;
}

void Runner::Loop::UpdateStatus() {
  RunnerStatus status;
  status.runnable_requests = RunnableRequests();
  status.sweep_error = sweep_error_;
  if (session_ != nullptr) {
    status.max_block_requests = session_->engine->info().max_block_requests;
    status.kv_used_ratio = block_->num_held() > 0 ? kv_used_ratio_ : 0;
    status.engine_memory_bytes = usage_.memory_bytes + usage_.device_memory_bytes;
    status.loaded_model = session_->key.model;
    status.device = session_->engine->info().device;
    status.tokens_per_second = block_->num_held() > 0 ? rate_.tokens_per_second() : 0;
    status.held_requests = block_->num_held();
    status.times = times_;
    status.bottleneck = Bottleneck(times_);
    const int64_t now_us = clock_.MonotonicMicros();
    const int64_t interval_us = std::max(kEstimateIntervalUs, kEstimatesApart * estimate_us_);
    if (estimated_us_ == 0 || now_us - estimated_us_ >= interval_us) {
      estimated_us_ = now_us;
      times_left_us_ = clock_.WallMicros();
      times_left_ = std::make_shared<const std::map<std::string, TimeLeft>>(EstimateTimes());
      estimate_us_ = clock_.MonotonicMicros() - now_us;
    }
  }
  status.policy = planner_.state();
  status.plan_counts = planner_.counts();
  status.times_left = times_left_;
  status.times_left_us = times_left_us_;
  MutexLock lock(mutex_);
  status_ = std::move(status);
}

void Runner::Loop::NoteSpeed() {
  if (const std::optional<TokenCosts> planned = planner_.token_costs()) {
    const double ratio = planner_.pace().ratio();
    speeds_.Note(session_->key,
                 {.prompt_seconds = ratio * planned->prompt_seconds,
                  .output_seconds = ratio * planned->output_seconds},
                 planner_.pace().uncertainty());
  } else if (const double rate = rate_.tokens_per_second(); rate > 0.0) {
    speeds_.Note(session_->key, {.prompt_seconds = 1.0 / rate, .output_seconds = 1.0 / rate},
                 kRateUncertainty);
  }
}

size_t Runner::Loop::AddModel(const ModelKey& key, QueueState& state) const {
  std::vector<QueuedModel>& models = state.models;
  const auto found = std::find_if(models.begin(), models.end(),
                                  [&](const QueuedModel& model) { return model.key == key; });
  if (found != models.end()) {
    return static_cast<size_t>(found - models.begin());
  }
  models.push_back(
      {.key = key, .loaded_us = LoadedUs(key), .load_seconds = speeds_.LoadSeconds(key)});
  return models.size() - 1;
}

Runner::Loop::ModelSize Runner::Loop::SizeOf(const ModelKey& key) const {
  const absl::StatusOr<CatalogModel> model = catalog_.Find(key.model);
  return model.ok()
             ? ModelSize{.parameters = model->parameters, .context_tokens = model->context_tokens}
             : ModelSize{};
}

std::map<std::string, TimeLeft> Runner::Loop::EstimateTimes() {
  NoteSpeed();
  if (holding_ || options_.disk_is_full() || !speeds_.Knows(session_->key)) {
    return {};
  }
  const std::map<std::string, DoneTokens> done = block_->done_tokens();
  QueueState state = {.now_us = now_us_, .models = {}, .loaded = {}};
  state.loaded = AddModel(session_->key, state);
  state.slice_seconds = kMicro * static_cast<double>(options_.model_slice_us);
  state.slice_left_seconds =
      kMicro * static_cast<double>(slice_us_ + LoadedUs(session_->key) - clock_.MonotonicMicros());
  std::vector<ModelSize> sizes;  // of state.models
  std::vector<JobLeft> jobs;
  for (const ActiveJob& job : jobs_) {
    const ModelKey& key = job.context->key;
    if (!IsRunnable(job.record.state) || !job.context->status.ok() || !CanHaveModel(job)) {
      continue;
    }
    const size_t model = AddModel(key, state);
    while (sizes.size() < state.models.size()) {
      sizes.push_back(SizeOf(state.models[sizes.size()].key));
    }
    const auto found = done.find(job.record.id);
    const DoneTokens of_job = found == done.end() ? DoneTokens() : found->second;
    const TokensLeft left =
        TokensLeftOf(QueuedOf(job), of_job.prompt, of_job.output, sizes[model].context_tokens);
    jobs.push_back({.id = job.record.id,
                    .model = model,
                    .priority = job.record.priority,
                    .calendar = &job.context->calendar,
                    .alone = speeds_.Alone(key, sizes[model].parameters, left)});
  }
  std::map<std::string, TimeLeft> times = TimesLeft(jobs, state);
  for (const JobLeft& job : jobs) {
    if (!speeds_.Knows(state.models[job.model].key)) {
      times.erase(job.id);
    }
  }
  return times;
}

Runner::Runner(RunnerOptions options, StoreActor& store, ModelCatalog& catalog,
               EngineFactory factory, const Clock& clock)
    : loop_(std::make_unique<Loop>(std::move(options), store, catalog, std::move(factory), clock)) {
}

Runner::~Runner() {
  Drain();
}

void Runner::Start() {
  loop_->Start();
}

void Runner::Drain() {
  loop_->Drain();
}

void Runner::Hold(bool hold) {
  loop_->Hold(hold);
}

void Runner::Wake() {
  loop_->Wake();
}

RunnerStatus Runner::status() const {
  return loop_->status();
}

absl::StatusOr<PolicyState> Runner::PlanFor(const ModelKey& key, const WorkloadProfile& workload,
                                            const std::vector<DType>& kv_types) const {
  return loop_->PlanFor(key, workload, kv_types);
}

absl::StatusOr<ModelTextPtr> Runner::TextOf(const CatalogModel& model) const {
  return loop_->TextOf(model);
}

std::vector<StepTimes> Runner::timeline() const {
  return loop_->timeline();
}

}  // namespace nightshift
