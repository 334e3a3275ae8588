#include "tests/support/memory_job_store.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status NoSuchJob(const std::string& job_id) {
  return absl::NotFoundError(absl::StrCat("job ", job_id, " does not exist"));
}

bool IsEnded(RowState state) {
  return state >= RowState::kSucceeded;
}

StoredRow StoredRowOf(const MemoryRow& row) {
  return {.index = row.input.index,
          .offset = row.input.offset,
          .length = row.input.length,
          .line = row.input.line,
          .has_result = row.seq > 0,
          .crc = row.input.crc};
}

RowCounts Count(const std::vector<MemoryRow>& rows) {
  RowCounts counts;
  for (const MemoryRow& row : rows) {
    ++counts.total;
    switch (row.state) {
      case RowState::kPending:
        ++counts.pending;
        break;
      case RowState::kRunning:
        ++counts.running;
        break;
      case RowState::kSucceeded:
        ++counts.succeeded;
        break;
      case RowState::kFailed:
        ++counts.failed;
        break;
      case RowState::kCancelled:
        ++counts.cancelled;
        break;
      case RowState::kExpired:
        ++counts.expired;
        break;
    }
  }
  return counts;
}

// Recounts, and ends the job when its last row has ended.
void Settle(MemoryJob& job, int64_t now_us) {
  JobRecord& record = job.record;
  record.counts = Count(job.rows);
  record.last_seq = static_cast<int64_t>(job.results.size());
  const bool done = record.counts.pending + record.counts.running == 0;
  if (!done || IsTerminal(record.state) || record.state == JobState::kReceiving) {
    return;
  }
  record.state =
      record.state == JobState::kCancelling ? record.end_state : JobState::kSucceeded;
  record.end_time_us = now_us;
}

void AddResult(MemoryJob& job, MemoryRow& row, const std::string& body) {
  row.seq = static_cast<int64_t>(job.results.size()) + 1;
  job.results.push_back({.seq = row.seq, .index = row.input.index, .body = body});
  job.record.result_bytes += static_cast<int64_t>(body.size());
}

JobState WaitingState(const JobRecord& job) {
  return job.checked < job.counts.total ? JobState::kValidating : JobState::kQueued;
}

}  // namespace

// The disk is read and changed by the thread that holds this, or inside its own transaction.
class MemoryJobStore::Access {
 public:
  explicit Access(MemoryJobStore& store) : store_(store) {
    MutexLock lock(store_.mutex_);
    if (store_.writing_thread_ == std::this_thread::get_id()) {
      return;
    }
    while (store_.writing_thread_ != std::thread::id()) {
      store_.transaction_ended_.Wait(store_.mutex_);
    }
    store_.writing_thread_ = std::this_thread::get_id();
    taken_ = true;
  }
  ~Access() {
    if (!taken_) {
      return;
    }
    MutexLock lock(store_.mutex_);
    store_.writing_thread_ = std::thread::id();
    store_.transaction_ended_.NotifyAll();
  }
  Access(const Access&) = delete;
  Access& operator=(const Access&) = delete;

 private:
  MemoryJobStore& store_;
  bool taken_ = false;
};

MemoryJobStore::~MemoryJobStore() {
  Rollback();
}

void MemoryJobStore::FailNextCommits(std::vector<absl::Status> statuses) {
  MutexLock lock(mutex_);
  commit_faults_.assign(statuses.begin(), statuses.end());
}

int64_t MemoryJobStore::num_commits() {
  MutexLock lock(mutex_);
  return num_commits_;
}

absl::Status MemoryJobStore::Begin() {
  MutexLock lock(mutex_);
  while (writing_thread_ != std::thread::id()) {
    transaction_ended_.Wait(mutex_);
  }
  writing_thread_ = std::this_thread::get_id();
  return absl::OkStatus();
}

absl::Status MemoryJobStore::Commit() {
  absl::Status fault;
  {
    MutexLock lock(mutex_);
    if (!commit_faults_.empty()) {
      fault = commit_faults_.front();
      commit_faults_.pop_front();
    }
  }
  if (!fault.ok()) {
    Rollback();
    return fault;
  }
  undo_.clear();
  MutexLock lock(mutex_);
  ++num_commits_;
  writing_thread_ = std::thread::id();
  transaction_ended_.NotifyAll();
  return absl::OkStatus();
}

void MemoryJobStore::Rollback() {
  if (marked_) {
    UndoAll(mark_undo_);
    marked_ = false;
  }
  UndoAll(undo_);
  MutexLock lock(mutex_);
  writing_thread_ = std::thread::id();
  transaction_ended_.NotifyAll();
}

absl::Status MemoryJobStore::SetMark() {
  CHECK(!marked_);
  marked_ = true;
  return absl::OkStatus();
}

absl::Status MemoryJobStore::ReleaseMark() {
  CHECK(marked_);
  marked_ = false;
  undo_.merge(mark_undo_);
  mark_undo_.clear();
  return absl::OkStatus();
}

absl::Status MemoryJobStore::RollbackToMark() {
  CHECK(marked_);
  marked_ = false;
  UndoAll(mark_undo_);
  return absl::OkStatus();
}

absl::Status MemoryJobStore::Checkpoint() {
  return absl::OkStatus();
}

void MemoryJobStore::Touch(const std::string& job_id) {
  Undo& undo = marked_ ? mark_undo_ : undo_;
  if (undo.count(job_id) != 0) {
    return;
  }
  const auto found = disk_.jobs.find(job_id);
  undo[job_id] = found == disk_.jobs.end() ? std::nullopt : std::optional(found->second);
}

void MemoryJobStore::UndoAll(Undo& undo) {
  for (auto& [job_id, before] : undo) {
    if (before.has_value()) {
      disk_.jobs[job_id] = *std::move(before);
    } else {
      disk_.jobs.erase(job_id);
    }
  }
  undo.clear();
}

MemoryJob* MemoryJobStore::Find(const std::string& job_id, bool visible) {
  const auto found = disk_.jobs.find(job_id);
  const bool hidden =
      found != disk_.jobs.end() && visible && found->second.record.state == JobState::kReceiving;
  return found == disk_.jobs.end() || hidden ? nullptr : &found->second;
}

absl::StatusOr<MemoryJob*> MemoryJobStore::FindToChange(const std::string& job_id) {
  if (Find(job_id, /*visible=*/false) == nullptr) {
    return NoSuchJob(job_id);
  }
  Touch(job_id);
  return Find(job_id, /*visible=*/false);
}

absl::StatusOr<MemoryJob*> MemoryJobStore::FindMeant(const std::string& job_id,
                                                     const std::string& job_uid) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
  return job_uid.empty() || job_uid == job->record.uid ? absl::StatusOr<MemoryJob*>(job)
                                                       : NoSuchJob(job_id);
}

absl::Status MemoryJobStore::InsertJob(const JobRecord& job) {
  const bool taken = std::any_of(disk_.jobs.begin(), disk_.jobs.end(), [&](const auto& entry) {
    const JobRecord& other = entry.second.record;
    return other.id == job.id || (!job.request_id.empty() && other.tenant == job.tenant &&
                                  other.request_id == job.request_id);
  });
  if (taken) {
    return absl::AlreadyExistsError(
        absl::StrCat("job ", job.id, " or request_id ", job.request_id, " exists"));
  }
  Touch(job.id);
  JobRecord& record = disk_.jobs[job.id].record;
  record.id = job.id;
  record.uid = job.uid;
  record.tenant = job.tenant;
  record.request_id = job.request_id;
  record.fingerprint = job.fingerprint;
  record.model = job.model;
  record.spec = job.spec;
  record.priority = job.priority;
  record.input_format = job.input_format;
  record.input_file = job.input_file;
  record.after_uid = job.after_uid;
  record.create_time_us = job.create_time_us;
  record.expire_time_us = job.expire_time_us;
  record.retry_of = job.retry_of;
  record.input_bytes = job.input_bytes;
  return absl::OkStatus();
}

absl::Status MemoryJobStore::InsertRows(const std::string& job_id,
                                        const std::vector<NewRow>& rows) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
  if (job->record.state != JobState::kReceiving) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " takes no more rows"));
  }
  for (const NewRow& row : rows) {
    if (row.index != static_cast<int64_t>(job->rows.size())) {
      return absl::InternalError(absl::StrCat("row ", row.index, " does not follow"));
    }
    MemoryRow added = {.input = row, .progress = {}};
    if (row.error_body.has_value()) {
      added.state = RowState::kFailed;
      AddResult(*job, added, *row.error_body);
    }
    job->rows.push_back(std::move(added));
  }
  Settle(*job, 0);
  return absl::OkStatus();
}

absl::Status MemoryJobStore::FinishReceiving(const std::string& job_id, int64_t now_us) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
  if (job->record.state != JobState::kReceiving) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " was received before"));
  }
  job->record.state = WaitingState(job->record);
  Settle(*job, now_us);
  return absl::OkStatus();
}

absl::Status MemoryJobStore::DeleteJob(const std::string& job_id) {
  RETURN_IF_ERROR(FindToChange(job_id).status());
  disk_.jobs.erase(job_id);
  return absl::OkStatus();
}

absl::Status MemoryJobStore::PurgeResults(const std::string& job_id) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
  if (IsTerminal(job->record.state) && !job->record.purged) {
    job->record.purged = true;
    job->record.input_file.clear();
    job->rows.clear();
    job->results.clear();
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> MemoryJobStore::PurgeDeleted(int64_t /*max_rows*/) {
  return false;  // nothing is kept
}

absl::StatusOr<MemoryJob*> MemoryJobStore::FindVisibleToChange(const std::string& job_id) {
  if (Find(job_id, /*visible=*/true) == nullptr) {
    return NoSuchJob(job_id);
  }
  return FindToChange(job_id);
}

absl::Status MemoryJobStore::SaveChecked(const CheckedRows& rows) {
  const absl::StatusOr<MemoryJob*> job = FindMeant(rows.job_id, rows.job_uid);
  if (!job.ok() || rows.end_index <= (*job)->record.checked) {
    return absl::OkStatus();
  }
  JobRecord& record = (*job)->record;
  record.checked = rows.end_index;
  record.checked_prompts += rows.prompts;
  record.checked_prompt_tokens += rows.prompt_tokens;
  record.longest_prompt_tokens =
      std::max(record.longest_prompt_tokens, rows.longest_prompt_tokens);
  if (record.state == JobState::kValidating) {
    record.state = WaitingState(record);
  }
  return absl::OkStatus();
}

std::vector<ClaimedRow> MemoryJobStore::PendingRows(const std::string& job_id, int64_t end_index,
                                                    const std::vector<int64_t>& preferred,
                                                    int64_t limit) {
  const MemoryJob& job = *Find(job_id, /*visible=*/false);
  std::vector<int64_t> order;
  for (const bool returned : {true, false}) {
    if (!returned) {
      order.insert(order.end(), preferred.begin(), preferred.end());
    }
    for (int64_t i = 0; i < static_cast<int64_t>(job.rows.size()); ++i) {
      if (job.rows[static_cast<size_t>(i)].returned == returned) {
        order.push_back(i);
      }
    }
  }
  std::vector<ClaimedRow> rows;
  std::set<int64_t> taken;
  for (const int64_t i : order) {
    const MemoryRow& row = job.rows[static_cast<size_t>(i)];
    if (static_cast<int64_t>(rows.size()) == limit) {
      break;
    }
    if (row.state == RowState::kPending && i < end_index && taken.insert(i).second) {
      rows.push_back({.job_id = job_id,
                      .index = row.input.index,
                      .offset = row.input.offset,
                      .length = row.input.length,
                      .line = row.input.line,
                      .crc = row.input.crc,
                      .attempt = row.attempt,
                      .progress = row.progress});
    }
  }
  return rows;
}

absl::StatusOr<std::vector<ClaimedRow>> MemoryJobStore::Claim(const std::string& job_id,
                                                              int64_t limit,
                                                              const std::vector<int64_t>& preferred,
                                                              int64_t now_us) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
  JobRecord& record = job->record;
  if (!IsRunnable(record.state)) {
    return std::vector<ClaimedRow>();
  }
  std::vector<ClaimedRow> rows = PendingRows(job_id, record.checked, preferred, limit);
  for (ClaimedRow& claimed : rows) {
    MemoryRow& row = job->rows[static_cast<size_t>(claimed.index)];
    row.state = RowState::kRunning;
    row.returned = false;
    claimed.attempt = ++row.attempt;
    claimed.job_uid = record.uid;
  }
  if (!rows.empty() && record.state != JobState::kRunning) {
    record.state = JobState::kRunning;
    record.start_time_us = now_us;
  }
  Settle(*job, now_us);
  return rows;
}

absl::StatusOr<int64_t> MemoryJobStore::Publish(const std::vector<FinishedRow>& rows,
                                                int64_t now_us) {
  int64_t dropped = 0;
  for (const FinishedRow& finished : rows) {
    const absl::StatusOr<MemoryJob*> job = FindMeant(finished.job_id, finished.job_uid);
    if (!job.ok()) {
      ++dropped;
      continue;
    }
    MemoryRow& row = (*job)->rows[static_cast<size_t>(finished.index)];
    if (IsEnded(row.state)) {
      ++dropped;
      continue;
    }
    row.state = finished.outcome;
    row.progress.clear();
    AddResult(**job, row, finished.body);
    (*job)->record.prompt_tokens += finished.prompt_tokens;
    (*job)->record.output_tokens += finished.output_tokens;
    (*job)->record.cached_tokens += finished.cached_tokens;
    Settle(**job, now_us);
  }
  return dropped;
}

absl::Status MemoryJobStore::SaveProgress(const std::vector<RowProgress>& rows) {
  for (const RowProgress& progress : rows) {
    const absl::StatusOr<MemoryJob*> job = FindMeant(progress.job_id, progress.job_uid);
    if (!job.ok()) {
      continue;
    }
    MemoryRow& row = (*job)->rows[static_cast<size_t>(progress.index)];
    if (row.state == RowState::kRunning) {
      row.progress = progress.progress;
    }
  }
  return absl::OkStatus();
}

absl::Status MemoryJobStore::SaveReports(const std::vector<JobReport>& reports) {
  for (const JobReport& report : reports) {
    const absl::StatusOr<MemoryJob*> job = FindToChange(report.job_id);
    if (job.ok()) {
      (*job)->record.report = report.report;
    }
  }
  return absl::OkStatus();
}

absl::Status MemoryJobStore::Unclaim(const std::vector<RowProgress>& rows, bool count_attempt) {
  for (const RowProgress& returned : rows) {
    const absl::StatusOr<MemoryJob*> job = FindMeant(returned.job_id, returned.job_uid);
    if (!job.ok()) {
      continue;
    }
    MemoryRow& row = (*job)->rows[static_cast<size_t>(returned.index)];
    if (row.state != RowState::kRunning) {
      continue;
    }
    row.state = RowState::kPending;
    row.returned = true;
    row.attempt -= count_attempt ? 0 : 1;
    if (!returned.progress.empty()) {
      row.progress = returned.progress;
    }
    Settle(**job, 0);
  }
  return absl::OkStatus();
}

absl::Status MemoryJobStore::PauseJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindVisibleToChange(job_id));
  if (!IsOpen(job->record.state)) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " is ending or has ended"));
  }
  job->record.state = JobState::kPaused;
  return absl::OkStatus();
}

absl::Status MemoryJobStore::ResumeJob(const std::string& job_id) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindVisibleToChange(job_id));
  JobRecord& record = job->record;
  if (!IsOpen(record.state)) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " is ending or has ended"));
  }
  if (record.state == JobState::kPaused) {
    record.state = record.start_time_us == 0 ? WaitingState(record) : JobState::kRunning;
  }
  return absl::OkStatus();
}

absl::Status MemoryJobStore::RequestCancel(const std::string& job_id) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindVisibleToChange(job_id));
  JobState& state = job->record.state;
  if (IsTerminal(state) && state != JobState::kCancelled) {
    return absl::FailedPreconditionError(absl::StrCat("job ", job_id, " has ended"));
  }
  if (IsOpen(state)) {
    state = JobState::kCancelling;
    job->record.end_state = JobState::kCancelled;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemoryJobStore::ExpireJobs(int64_t now_us) {
  std::vector<std::string> due;
  for (const auto& [job_id, job] : disk_.jobs) {
    const int64_t expire_time_us = job.record.expire_time_us;
    if (IsOpen(job.record.state) && expire_time_us > 0 && expire_time_us <= now_us) {
      due.push_back(job_id);
    }
  }
  for (const std::string& job_id : due) {
    ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
    job->record.state = JobState::kCancelling;
    job->record.end_state = JobState::kExpired;
    Settle(*job, now_us);
  }
  return due;
}

absl::Status MemoryJobStore::FailJob(const std::string& job_id, const std::string& error,
                                     int64_t now_us) {
  ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
  JobRecord& record = job->record;
  if (IsRunnable(record.state)) {
    record.state = JobState::kCancelling;
    record.end_state = JobState::kFailed;
    record.error = error;
    Settle(*job, now_us);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> MemoryJobStore::Recover() {
  std::vector<std::string> job_ids;
  for (const auto& [job_id, job] : disk_.jobs) {
    job_ids.push_back(job_id);
  }
  std::vector<std::string> input_files;
  for (const std::string& job_id : job_ids) {
    ASSIGN_OR_RETURN(MemoryJob* const job, FindToChange(job_id));
    if (job->record.state == JobState::kReceiving) {
      if (!job->record.input_file.empty()) {
        input_files.push_back(job->record.input_file);
      }
      disk_.jobs.erase(job_id);
      continue;
    }
    for (MemoryRow& row : job->rows) {
      if (row.state == RowState::kRunning) {
        row.state = RowState::kPending;
        row.returned = true;
        --row.attempt;
      }
    }
    Settle(*job, 0);
  }
  return input_files;
}

absl::StatusOr<JobRecord> MemoryJobStore::GetJob(const std::string& job_id) {
  const Access access(*this);
  const MemoryJob* job = Find(job_id, /*visible=*/true);
  return job == nullptr ? absl::StatusOr<JobRecord>(NoSuchJob(job_id)) : job->record;
}

absl::StatusOr<JobRecord> MemoryJobStore::FindSubmission(const std::string& tenant,
                                                         const std::string& request_id) {
  const Access access(*this);
  for (const auto& [job_id, job] : disk_.jobs) {
    if (!request_id.empty() && job.record.tenant == tenant && job.record.request_id == request_id) {
      return job.record;
    }
  }
  return absl::NotFoundError(absl::StrCat("no job has request_id ", request_id));
}

absl::StatusOr<std::vector<JobRecord>> MemoryJobStore::ListJobs(const JobFilter& filter,
                                                                int64_t limit) {
  const Access access(*this);
  std::vector<JobRecord> jobs;
  for (const auto& [job_id, job] : disk_.jobs) {
    const JobRecord& record = job.record;
    const bool older = std::tie(record.create_time_us, record.id) <
                       std::tie(filter.before_create_time_us, filter.before_id);
    const bool wanted = (!filter.state.has_value() || record.state == *filter.state) &&
                        (!filter.tenant.has_value() || record.tenant == *filter.tenant);
    const bool in_range = record.create_time_us >= filter.from_create_time_us;
    if (record.state != JobState::kReceiving && older && wanted && in_range) {
      jobs.push_back(record);
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) {
    return std::tie(a.create_time_us, a.id) > std::tie(b.create_time_us, b.id);
  });
  jobs.resize(std::min(jobs.size(), static_cast<size_t>(limit)));
  return jobs;
}

absl::StatusOr<TenantUsage> MemoryJobStore::ReadUsage(const std::string& tenant) {
  const Access access(*this);
  TenantUsage usage;
  for (const auto& [job_id, job] : disk_.jobs) {
    const JobRecord& record = job.record;
    if (record.tenant != tenant) {
      continue;
    }
    if (!IsTerminal(record.state)) {
      ++usage.active_jobs;
      const RowCounts counts = Count(job.rows);
      usage.queued_requests += counts.pending + counts.running;
    }
    usage.stored_bytes += record.purged ? 0 : record.input_bytes + record.result_bytes;
  }
  return usage;
}

absl::StatusOr<std::map<JobState, int64_t>> MemoryJobStore::CountJobs() {
  const Access access(*this);
  std::map<JobState, int64_t> counts;
  for (const auto& [job_id, job] : disk_.jobs) {
    if (job.record.state != JobState::kReceiving) {
      ++counts[job.record.state];
    }
  }
  return counts;
}

absl::StatusOr<std::vector<JobRecord>> MemoryJobStore::ActiveJobs() {
  const Access access(*this);
  std::vector<JobRecord> jobs;
  for (const auto& [job_id, job] : disk_.jobs) {
    if (job.record.state != JobState::kReceiving && !IsTerminal(job.record.state)) {
      jobs.push_back(job.record);
    }
  }
  std::sort(jobs.begin(), jobs.end(), [](const JobRecord& a, const JobRecord& b) {
    return std::make_tuple(-a.priority, a.create_time_us) <
           std::make_tuple(-b.priority, b.create_time_us);
  });
  return jobs;
}

absl::StatusOr<std::vector<StoredResult>> MemoryJobStore::ReadResults(const std::string& job_id,
                                                                      int64_t after_seq,
                                                                      int64_t max_bytes) {
  const Access access(*this);
  const MemoryJob* job = Find(job_id, /*visible=*/true);
  if (job == nullptr) {
    return NoSuchJob(job_id);
  }
  std::vector<StoredResult> results;
  int64_t bytes = 0;
  for (size_t i = static_cast<size_t>(after_seq); i < job->results.size() && bytes < max_bytes;
       ++i) {
    results.push_back(job->results[i]);
    bytes += static_cast<int64_t>(job->results[i].body.size());
  }
  return results;
}

absl::StatusOr<std::vector<StoredResult>> MemoryJobStore::ReadResultsInInputOrder(
    const std::string& job_id, int64_t first_index, int64_t max_bytes) {
  const Access access(*this);
  const MemoryJob* job = Find(job_id, /*visible=*/true);
  if (job == nullptr) {
    return NoSuchJob(job_id);
  }
  std::vector<StoredResult> results;
  int64_t bytes = 0;
  for (size_t i = static_cast<size_t>(first_index);
       i < job->rows.size() && job->rows[i].seq > 0 && bytes < max_bytes; ++i) {
    results.push_back(job->results[static_cast<size_t>(job->rows[i].seq - 1)]);
    bytes += static_cast<int64_t>(results.back().body.size());
  }
  return results;
}

absl::StatusOr<std::vector<StoredRow>> MemoryJobStore::ReadRows(const std::string& job_id,
                                                                int64_t first_index,
                                                                int64_t limit) {
  const Access access(*this);
  const MemoryJob* job = Find(job_id, /*visible=*/true);
  if (job == nullptr) {
    return NoSuchJob(job_id);
  }
  std::vector<StoredRow> rows;
  for (size_t i = static_cast<size_t>(first_index);
       i < job->rows.size() && static_cast<int64_t>(rows.size()) < limit; ++i) {
    rows.push_back(StoredRowOf(job->rows[i]));
  }
  return rows;
}

absl::StatusOr<std::vector<StoredRow>> MemoryJobStore::NeverClaimed(const std::string& job_id,
                                                                    int64_t first_index,
                                                                    int64_t end_index,
                                                                    int64_t limit) {
  const Access access(*this);
  const MemoryJob* job = Find(job_id, /*visible=*/true);
  if (job == nullptr) {
    return NoSuchJob(job_id);
  }
  std::vector<StoredRow> rows;
  const size_t end = std::min(job->rows.size(), static_cast<size_t>(end_index));
  for (size_t i = static_cast<size_t>(first_index);
       i < end && static_cast<int64_t>(rows.size()) < limit; ++i) {
    const MemoryRow& row = job->rows[i];
    if (row.state == RowState::kPending && !row.returned) {
      rows.push_back(StoredRowOf(row));
    }
  }
  return rows;
}

absl::StatusOr<std::vector<std::string>> MemoryJobStore::EndedBefore(int64_t end_time_us,
                                                                     bool purged, int64_t limit) {
  const Access access(*this);
  std::vector<std::pair<int64_t, std::string>> ended;
  for (const auto& [job_id, job] : disk_.jobs) {
    const int64_t ended_us = job.record.end_time_us;
    if (job.record.purged == purged && ended_us > 0 && ended_us < end_time_us) {
      ended.emplace_back(ended_us, job_id);
    }
  }
  std::sort(ended.begin(), ended.end());
  ended.resize(std::min(ended.size(), static_cast<size_t>(limit)));
  std::vector<std::string> ids;
  for (auto& [ended_us, job_id] : ended) {
    ids.push_back(std::move(job_id));
  }
  return ids;
}

absl::StatusOr<std::vector<ClaimedRow>> MemoryJobStore::NextUnfinished(const std::string& job_id,
                                                                       int64_t limit) {
  const Access access(*this);
  const MemoryJob* job = Find(job_id, /*visible=*/true);
  if (job == nullptr) {
    return NoSuchJob(job_id);
  }
  return PendingRows(job_id, job->record.counts.total, {}, limit);
}

absl::StatusOr<std::vector<std::string>> MemoryJobStore::InputFiles() {
  const Access access(*this);
  std::vector<std::string> files;
  for (const auto& [job_id, job] : disk_.jobs) {
    if (!job.record.input_file.empty()) {
      files.push_back(job.record.input_file);
    }
  }
  return files;
}

}  // namespace nightshift
