#include "server/scheduling/preflight.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"
#include "server/input/rpc_error.h"
#include "server/scheduling/block.h"
#include "server/scheduling/early_end.h"

namespace nightshift {
namespace {

// Rows of one check and one commit, and of their input: the first rows of a job are soon there to
// be claimed, and a commit of a few milliseconds follows tenths of a second of work.
constexpr int64_t kMaxRows = 2048;
constexpr int64_t kMaxBytes = 1 << 20;
// A job with so many checked rows that wait does not run out of them soon: a few blocks.
constexpr int64_t kManyRows = 1024;
// Rows that a refused job names.
constexpr size_t kMaxNamedRows = 5;

// About: rows that were refused at acceptance and lie beyond the checked ones are not known.
int64_t CheckedAndWaiting(const JobRecord& job) {
  return job.counts.pending - (job.counts.total - job.checked);
}

// Why a job is refused of whose rows at [record.checked, end_index) some cannot run, as the job keeps
// it.
std::string Refusal(const JobRecord& record, const std::vector<CheckedRow>& rows,
                    int64_t end_index) {
  size_t num_invalid = 0;
  bool all_too_long = true;
  std::string named;
  for (const CheckedRow& row : rows) {
    if (row.status.ok()) {
      continue;
    }
    all_too_long = all_too_long && ErrorReason(row.status) == reason::kPromptTooLong;
    if (++num_invalid > kMaxNamedRows) {
      continue;
    }
    const bool has_line = row.header.line > 0;
    absl::StrAppend(&named, named.empty() ? "" : "; ", has_line ? "line " : "row ",
                    has_line ? row.header.line : row.header.index, ": ", row.status.message());
  }
  return SerializeJobError(
      all_too_long ? reason::kPromptTooLong : reason::kInputMalformed,
      absl::InvalidArgumentError(
          absl::StrCat(num_invalid, " of the rows ", record.checked, " to ", end_index - 1,
                       " cannot run and on_invalid_line is REJECT_JOB: ", named,
                       num_invalid > kMaxNamedRows ? "; ..." : "")));
}

}  // namespace

std::vector<JobRecord>::const_iterator ChooseJobToCheck(const std::vector<JobRecord>& jobs) {
  const auto rank = [](const JobRecord& job) {
    const bool wants = IsRunnable(job.state) && job.checked < job.counts.total;
    const int64_t waiting = CheckedAndWaiting(job);
    return std::make_tuple(!wants, waiting >= kManyRows, -job.priority, waiting);
  };
  const auto first =
      std::min_element(jobs.begin(), jobs.end(),
                       [&](const JobRecord& a, const JobRecord& b) { return rank(a) < rank(b); });
  return first == jobs.end() || std::get<0>(rank(*first)) ? jobs.end() : first;
}

Preflight::Preflight(PreflightOptions options, StoreActor& store, ModelCatalog& catalog,
                     ModelTexts& texts, ModelWaits& waits, KeptPrompts& kept,
                     RequestPreparer& preparer, const Clock& clock)
    : options_(std::move(options)),
      store_(store),
      catalog_(catalog),
      texts_(texts),
      waits_(waits),
      kept_(kept),
      preparer_(preparer),
      clock_(clock),
      troubles_(options_.input_retry_interval_us),
      subscription_(store.events().Subscribe("", [this] { wakeup_.Notify(); })) {}

Preflight::~Preflight() {
  Stop();
  store_.events().Unsubscribe(subscription_);
}

void Preflight::Start() {
  thread_ = std::thread([this] { Run(); });
}

void Preflight::Stop() {
  stopping_ = true;
  preparer_.StopChecks();
  wakeup_.Notify();
  if (thread_.joinable()) {
    thread_.join();
  }
}

void Preflight::Hold(bool hold) {
  holding_ = hold;
  wakeup_.Notify();
}

void Preflight::Retry() {
  retrying_ = true;
  wakeup_.Notify();
}

void Preflight::Run() {
  NameThread("ns-preflight");
  while (!stopping_) {
    const int64_t ticket = wakeup_.ticket();
    if (Step() || stopping_) {
      continue;
    }
    const int64_t now_us = clock_.MonotonicMicros();
    const int64_t retry_us = troubles_.NextRetry(now_us);
    if (retry_us == INT64_MAX) {
      wakeup_.WaitPast(ticket);
    } else {
      wakeup_.WaitPast(ticket, retry_us - now_us);
    }
  }
}

bool Preflight::Step() {
  if (retrying_.exchange(false)) {
    waiting_.clear();
  }
  const absl::StatusOr<std::vector<JobRecord>> jobs = ReadJobs();
  if (!jobs.ok()) {
    LOG(ERROR) << "jobs_unreadable error=\"" << jobs.status().message() << "\"";
    return false;
  }
  const auto chosen = ChooseJobToCheck(*jobs);
  if (chosen == jobs->end() || holding_) {
    return false;
  }
  absl::StatusOr<Job> job = Begin(*chosen);
  if (!job.ok()) {
    LOG(WARNING) << "job_not_checked job=" << chosen->id << " error=\"" << job.status().message()
                 << "\"";
    waiting_.insert(chosen->uid);
    return true;
  }
  const int64_t ticket = wakeup_.ticket();
  const absl::Status status = CheckRows(*chosen, *job);
  if (absl::IsResourceExhausted(status) && !stopping_) {
    wakeup_.WaitPast(ticket, options_.store_retry_interval_us);  // the disk is full
  } else if (absl::IsUnavailable(status)) {
    return true;  // its input is read again later
  } else if (absl::IsDataLoss(status)) {
    // Its rows cannot be read: nobody waits for them.
    waiting_.insert(chosen->uid);
    const absl::Status failed =
        FailJob(*chosen, SerializeJobError(reason::kRecordCorrupt, status));
    if (!failed.ok()) {
      LOG(ERROR) << "job_fail_refused job=" << chosen->id << " error=\"" << failed.message()
                 << "\"";
    }
  } else if (!status.ok()) {
    LOG(ERROR) << "check_failed job=" << chosen->id << " error=\"" << status.message() << "\"";
    waiting_.insert(chosen->uid);
  }
  return true;
}

// All that may be checked, but for those that are left alone.
absl::StatusOr<std::vector<JobRecord>> Preflight::ReadJobs() {
  ASSIGN_OR_RETURN(std::vector<JobRecord> jobs, store_.store().ActiveJobs());
  std::set<std::string> uids;
  std::set<std::string> unchecked;
  for (const JobRecord& job : jobs) {
    uids.insert(job.uid);
    if (job.checked < job.counts.total) {
      unchecked.insert(job.uid);
    }
  }
  kept_.Retain(uids);
  std::erase_if(jobs_, [&](const auto& entry) { return unchecked.count(entry.first) == 0; });
  std::erase_if(waiting_, [&](const std::string& uid) { return unchecked.count(uid) == 0; });
  troubles_.Retain(unchecked);
  const int64_t now_us = clock_.MonotonicMicros();
  std::erase_if(jobs, [&](const JobRecord& job) {
    return waiting_.count(job.uid) != 0 || troubles_.WaitUntil(job.uid, now_us) > 0;
  });
  return jobs;
}

absl::StatusOr<ModelTextPtr> Preflight::TextOf(const std::string& model_name) {
  ASSIGN_OR_RETURN(const CatalogModel model, catalog_.Find(model_name));
  return texts_.Get(model);
}

absl::StatusOr<Preflight::Job> Preflight::Begin(const JobRecord& record) {
  const auto found = jobs_.find(record.uid);
  if (found != jobs_.end()) {
    return found->second;
  }
  Job job;
  job.context = MakeJobContext(record, options_.state_directory, options_.compute_type);
  RETURN_IF_ERROR(job.context->status);
  absl::StatusOr<ModelTextPtr> text = TextOf(record.model);
  if (!text.ok() && waits_.IsAway(record.model)) {
    return text.status();  // left alone until the runner has found it
  }
  if (!text.ok()) {
    text = TextOf(record.model);  // it may have come since the catalog was read
  }
  if (!text.ok()) {
    // An engine may still hold the pack as it was: nobody else would find out.
    RETURN_IF_ERROR(
        FailJob(record, SerializeJobError(reason::kModelUnavailable, text.status())));
    return text.status();
  }
  job.text = *std::move(text);
  jobs_[record.uid] = job;
  return job;
}

absl::Status Preflight::CheckRows(const JobRecord& record, const Job& job) {
  absl::StatusOr<std::vector<StoredRow>> rows =
      store_.store().ReadRows(record.id, record.checked, kMaxRows);
  if (absl::IsNotFound(rows.status())) {
    return absl::OkStatus();  // deleted meanwhile
  }
  RETURN_IF_ERROR(rows.status());
  if (rows->empty()) {
    return absl::DataLossError(
        absl::StrCat("the store has no row ", record.checked, " of ", record.counts.total));
  }
  std::vector<RowTask> tasks;
  int64_t bytes = 0;
  int64_t end_index = record.checked;
  for (const StoredRow& row : *rows) {
    if (bytes >= kMaxBytes) {
      break;
    }
    end_index = row.index + 1;
    if (row.has_result) {
      continue;
    }
    bytes += row.length;
    tasks.push_back({.job = job.context,
                     .text = job.text,
                     .row = {.job_id = record.id,
                             .index = row.index,
                             .offset = row.offset,
                             .length = row.length,
                             .line = row.line,
                             .crc = row.crc,
                             .progress = {}}});
  }
  std::vector<CheckedRow> checked = preparer_.Check(tasks);
  if (stopping_) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(JudgeUnread(record, job, checked));
  return Save(record, job, checked, end_index);
}

absl::Status Preflight::JudgeUnread(const JobRecord& record, const Job& job,
                                    std::vector<CheckedRow>& rows) {
  const int64_t now_us = clock_.MonotonicMicros();
  absl::Status judgement;
  for (CheckedRow& row : rows) {
    if (!absl::IsUnavailable(row.status)) {
      troubles_.Succeeded(record.uid, row.header.index);
      continue;
    }
    row.status = troubles_.Judge(record.uid, row.header.index, row.status, now_us);
    // Of a file that is open it is the row that fails.
    const bool fails_job = !job.context->input->is_open() && judgement.ok();
    if (absl::IsUnavailable(row.status) || fails_job) {
      judgement = row.status;
    }
  }
  return judgement;
}

absl::Status Preflight::Save(const JobRecord& record, const Job& job,
                             const std::vector<CheckedRow>& rows, int64_t end_index) {
  CheckedRows checked = {
      .job_id = record.id, .job_uid = record.uid, .end_index = end_index};
  std::vector<FinishedRow> failed;
  for (const CheckedRow& row : rows) {
    if (!row.status.ok()) {
      failed.push_back(FailRow(*job.context, row.header, row.status));
      continue;
    }
    ++checked.prompts;
    checked.prompt_tokens += row.prompt_tokens;
    checked.longest_prompt_tokens = std::max(checked.longest_prompt_tokens, row.prompt_tokens);
  }
  if (job.context->rejects_invalid && !failed.empty()) {
    return FailJob(record, Refusal(record, rows, end_index));
  }
  const int64_t now_us = clock_.WallMicros();
  const absl::Status saved = store_.WriteAndWait(record.id, [&](JobStore& store) -> absl::Status {
    RETURN_IF_ERROR(store.Publish(failed, now_us).status());
    return store.SaveChecked(checked);
  });
  Failpoint("check_committed");
  if (saved.ok()) {
    options_.metrics->Requests("failed").Increment(static_cast<double>(failed.size()));
  }
  return saved;
}

absl::Status Preflight::FailJob(const JobRecord& job, const std::string& error) {
  LOG(WARNING) << "job_refused job=" << job.id;
  const int64_t now_us = clock_.WallMicros();
  return store_.WriteAndWait(
      job.id, [&](JobStore& store) { return nightshift::FailJob(store, job, error, now_us); });
}

}  // namespace nightshift
