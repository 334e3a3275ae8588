#include "server/rpc/job_view.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "kernels/base/checksum.h"
#include "server/input/rpc_error.h"
#include "server/scheduling/job_calendar.h"
#include "server/security/caller.h"
#include "server/security/identifiers.h"

namespace nightshift {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;
constexpr char kNamePrefix[] = "jobs/";

void SetTime(int64_t wall_us, google::protobuf::Timestamp& time) {
  time.set_seconds(wall_us / kMicrosPerSecond);
  time.set_nanos(static_cast<int32_t>(wall_us % kMicrosPerSecond * 1000));
}

int64_t Done(const RowCounts& counts) {
  return counts.succeeded + counts.failed + counts.cancelled + counts.expired;
}

void SetSeconds(double seconds, google::protobuf::Duration& duration) {
  constexpr double kMaxSeconds = 10.0 * 365 * 24 * 3600;
  duration.set_seconds(static_cast<int64_t>(std::clamp(seconds, 0.0, kMaxSeconds)));
}

v1::Progress MakeProgress(const JobRecord& record, const ViewMoment& moment) {
  v1::Progress progress;
  progress.set_fraction(static_cast<double>(Done(record.counts)) /
                        static_cast<double>(std::max<int64_t>(record.counts.total, 1)));
  progress.set_checked_requests(record.checked);
  progress.set_checked_prompt_tokens(record.checked_prompt_tokens);
  if (record.state == JobState::kRunning) {
    progress.set_tokens_per_second(moment.tokens_per_second);
  }
  const bool goes_on = record.state == JobState::kRunning || record.state == JobState::kQueued;
  if (!goes_on || moment.times_left == nullptr) {
    return progress;
  }
  if (const auto found = moment.times_left->find(record.id); found != moment.times_left->end()) {
    const double since_s = static_cast<double>(moment.now_us - moment.times_left_us) /
                           static_cast<double>(kMicrosPerSecond);
    SetSeconds(found->second.seconds - since_s, *progress.mutable_eta());
    SetSeconds(found->second.least_seconds - since_s, *progress.mutable_eta_low());
    SetSeconds(found->second.most_seconds - since_s, *progress.mutable_eta_high());
  }
  return progress;
}

void SetNextRun(const JobRecord& record, int64_t now_us, v1::Job& job) {
  if (!IsRunnable(record.state)) {
    return;
  }
  const absl::StatusOr<JobCalendar> calendar = MakeCalendar(job.spec());
  if (calendar.ok() && !calendar->MayRun(now_us)) {
    SetTime(calendar->NextRun(now_us), *job.mutable_next_run_time());
  }
}

// Names the job that it waits for, while it does.
void SetWaitsFor(const JobRecord& record, const ViewMoment& moment, v1::Job& job) {
  if (record.after_uid.empty() || !IsOpen(record.state) || moment.store == nullptr) {
    return;
  }
  const absl::StatusOr<std::string> key = ParseJobName(record.tenant, job.spec().after_job());
  if (!key.ok()) {
    return;
  }
  const absl::StatusOr<JobRecord> other = moment.store->GetJob(*key);
  if (other.ok() && other->uid == record.after_uid && !IsTerminal(other->state)) {
    job.set_waits_for(job.spec().after_job());
  }
}

// Says why its model is not there, while it needs it: rows of a loaded one run, but none is checked.
void SetWaitsForModel(const JobRecord& record, const ViewMoment& moment, v1::Job& job) {
  const auto found = moment.model_waits.find(record.model);
  const bool runs = record.model == moment.loaded_model && record.state != JobState::kValidating;
  if (found != moment.model_waits.end() && IsRunnable(record.state) && !runs) {
    job.set_waits_for_model(found->second);
  }
}

absl::Status BrokenRecord(const JobRecord& record, absl::string_view field) {
  return MakeError(absl::StatusCode::kDataLoss, reason::kRecordCorrupt,
                   absl::StrCat(field, " of ", JobName(record.id), " in the store does not parse"),
                   {{"job", JobName(record.id)}});
}

}  // namespace

std::string JobEtag(const JobRecord& record) {
  const std::string state = absl::StrCat(record.uid, "/", static_cast<int>(record.state), "/",
                                         record.last_seq, "/", record.counts.running);
  return absl::StrCat(absl::Hex(Xxh3(std::as_bytes(std::span(state))), absl::kZeroPad16));
}

absl::Status CheckEtag(const JobRecord& record, absl::string_view etag) {
  if (etag.empty() || etag == JobEtag(record)) {
    return absl::OkStatus();
  }
  return MakeError(
      absl::StatusCode::kAborted, reason::kEtagMismatch,
      absl::StrCat("job ", JobName(record.id), " has changed since this etag was read"),
      {{"job", JobName(record.id)}});
}

absl::StatusOr<v1::Job> MakeJob(const JobRecord& record, const ViewMoment& moment) {
  v1::Job job;
  job.set_name(JobName(record.id));
  job.set_uid(record.uid);
  job.set_tenant(record.tenant);
  if (!job.mutable_spec()->ParseFromString(record.spec)) {
    return BrokenRecord(record, "spec");
  }
  *job.mutable_labels() = job.spec().labels();
  job.set_state(WireState(record.state));
  *job.mutable_counts() = MakeCounts(record.counts);
  job.mutable_tokens()->set_prompt(record.prompt_tokens);
  job.mutable_tokens()->set_output(record.output_tokens);
  job.mutable_tokens()->set_cached(record.cached_tokens);
  *job.mutable_progress() = MakeProgress(record, moment);
  SetTime(record.create_time_us, *job.mutable_create_time());
  if (record.start_time_us != 0) {
    SetTime(record.start_time_us, *job.mutable_start_time());
  }
  if (record.end_time_us != 0) {
    SetTime(record.end_time_us, *job.mutable_end_time());
  }
  if (record.expire_time_us != 0) {
    SetTime(record.expire_time_us, *job.mutable_expire_time());
  }
  SetNextRun(record, moment.now_us, job);
  SetWaitsFor(record, moment, job);
  SetWaitsForModel(record, moment, job);
  job.set_held(moment.drained && IsRunnable(record.state));
  if (!record.retry_of.empty()) {
    job.set_retry_of(JobName(record.retry_of));
  }
  job.set_results_expired(record.purged);
  job.set_last_seq(record.last_seq);
  if (!record.error.empty() && !job.mutable_error()->ParseFromString(record.error)) {
    return BrokenRecord(record, "error");
  }
  if (!record.report.empty() && !job.mutable_report()->ParseFromString(record.report)) {
    return BrokenRecord(record, "report");
  }
  job.set_etag(JobEtag(record));
  return job;
}

v1::JobState WireState(JobState state) {
  switch (state) {
    case JobState::kReceiving:
    case JobState::kValidating:
      return v1::JOB_STATE_VALIDATING;
    case JobState::kQueued:
      return v1::JOB_STATE_QUEUED;
    case JobState::kRunning:
      return v1::JOB_STATE_RUNNING;
    case JobState::kPaused:
      return v1::JOB_STATE_PAUSED;
    case JobState::kCancelling:
      return v1::JOB_STATE_CANCELLING;
    case JobState::kSucceeded:
      return v1::JOB_STATE_SUCCEEDED;
    case JobState::kFailed:
      return v1::JOB_STATE_FAILED;
    case JobState::kCancelled:
      return v1::JOB_STATE_CANCELLED;
    case JobState::kExpired:
      return v1::JOB_STATE_EXPIRED;
  }
  return v1::JOB_STATE_UNSPECIFIED;
}

std::string StateText(JobState state) {
  const std::string name = v1::JobState_Name(WireState(state));  // "JOB_STATE_RUNNING"
  return absl::AsciiStrToLower(absl::StripPrefix(name, "JOB_STATE_"));
}

std::optional<JobState> StoredState(v1::JobState state) {
  for (const JobState stored :
       {JobState::kValidating, JobState::kQueued, JobState::kRunning, JobState::kPaused, JobState::kCancelling,
        JobState::kSucceeded, JobState::kFailed, JobState::kCancelled, JobState::kExpired}) {
    if (WireState(stored) == state) {
      return stored;
    }
  }
  return std::nullopt;
}

v1::JobCounts MakeCounts(const RowCounts& counts) {
  v1::JobCounts wire;
  wire.set_total(counts.total);
  wire.set_pending(counts.pending);
  wire.set_running(counts.running);
  wire.set_succeeded(counts.succeeded);
  wire.set_failed(counts.failed);
  wire.set_cancelled(counts.cancelled);
  wire.set_expired(counts.expired);
  return wire;
}

std::string JobKey(absl::string_view tenant, absl::string_view id) {
  return tenant == kDefaultTenant ? std::string(id) : absl::StrCat(tenant, "/", id);
}

std::string JobName(absl::string_view key) {
  const size_t slash = key.find('/');
  return absl::StrCat(kNamePrefix, slash == absl::string_view::npos ? key : key.substr(slash + 1));
}

absl::StatusOr<std::string> ParseJobName(absl::string_view tenant, absl::string_view name) {
  absl::string_view id = name;
  if (!absl::ConsumePrefix(&id, kNamePrefix) || !IsJobId(id)) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"name", "must be jobs/{id} with an id of [a-z0-9-]{1,63}"}});
  }
  return JobKey(tenant, id);
}

absl::Status JobError(absl::Status status, absl::string_view key) {
  if (!absl::IsNotFound(status)) {
    return status;
  }
  return MakeError(absl::StatusCode::kNotFound, reason::kJobNotFound,
                   absl::StrCat("job ", JobName(key), " is not known"), {{"job", JobName(key)}});
}

}  // namespace nightshift
