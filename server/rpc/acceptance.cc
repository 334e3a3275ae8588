#include "server/rpc/acceptance.h"

#include <utility>
#include <vector>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <unistd.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/compression.h"
#include "server/rpc/disk_reserve.h"
#include "server/rpc/find_model.h"
#include "server/rpc/job_spec.h"
#include "server/rpc/job_view.h"
#include "server/rpc/status_bridge.h"
#include "server/security/digest.h"
#include "server/security/identifiers.h"

namespace nightshift {
namespace {

// Rows of one store write: about 60 bytes each, so a transaction of a few hundred KiB.
constexpr int64_t kRowsPerWrite = 4096;
constexpr int64_t kRetryDelayMs = 1000;

// Equal for equal messages, also with maps in them.
std::string SerializeStably(const google::protobuf::MessageLite& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&coded);
  }
  return bytes;
}

// Tells a retry from another body under the same request_id.
std::string Fingerprint(const Submission& submission, const std::string& input_sha256) {
  Sha256 digest;
  digest.Update(absl::StrCat(submission.job_id, "/", static_cast<int>(submission.format), "/"));
  digest.Update(input_sha256);
  digest.Update(SerializeStably(submission.spec));
  return digest.Finish();
}

// A seed that also a double holds, since JSON readers may use one.
uint64_t DrawSeed() {
  return RandomNumber() >> 11U;
}

absl::Status JobExists(const std::string& job_key) {
  return WithResource(
      MakeError(absl::StatusCode::kAlreadyExists, reason::kJobExists,
                absl::StrCat("job ", JobName(job_key), " exists; choose another job_id"),
                {{"job", JobName(job_key)}}),
      "nightshift.v1.Job", JobName(job_key));
}

absl::Status InProgress(const std::string& request_id) {
  return WithRetryDelay(
      MakeError(absl::StatusCode::kAborted, reason::kRequestInProgress,
                absl::StrCat("another call with request_id ", request_id, " is being accepted"),
                {{"request_id", request_id}}),
      kRetryDelayMs);
}

v1::Job Preview(const v1::JobSpec& spec, const InputScan& scan) {
  v1::Job job;
  *job.mutable_spec() = spec;
  *job.mutable_labels() = spec.labels();
  job.mutable_counts()->set_total(scan.num_rows());
  job.mutable_counts()->set_failed(scan.num_invalid());
  job.mutable_counts()->set_pending(scan.num_rows() - scan.num_invalid());
  return job;
}

}  // namespace

// Holds a request_id while its submission is being accepted.
class Acceptance::InFlight {
 public:
  InFlight(Acceptance& owner, const Submission& submission)
      : owner_(owner), request_(submission.tenant, submission.request_id) {
    MutexLock lock(owner_.mutex_);
    first_ = request_.second.empty() || owner_.in_flight_.insert(request_).second;
  }
  ~InFlight() {
    if (first_) {
      MutexLock lock(owner_.mutex_);
      owner_.in_flight_.erase(request_);
    }
  }
  InFlight(const InFlight&) = delete;
  InFlight& operator=(const InFlight&) = delete;
  bool first() const { return first_; }

 private:
  Acceptance& owner_;
  const std::pair<std::string, std::string> request_;
  bool first_ = false;
};

absl::Status Acceptance::Check(const Submission& submission) const {
  RETURN_IF_ERROR(context_.calls.CheckAccepts());
  if (!submission.job_id.empty() && !IsJobId(submission.job_id)) {
    return MakeFieldError(reason::kFieldInvalid, {{"job_id", "must match [a-z0-9-]{1,63}"}});
  }
  if (!submission.request_id.empty() && !IsUuid(submission.request_id)) {
    return MakeFieldError(reason::kFieldInvalid, {{"request_id", "must be a UUID"}});
  }
  RETURN_IF_ERROR(CheckSpec(submission.spec, context_.limits.parse, context_.clock.WallMicros()));
  RETURN_IF_ERROR(context_.tenants.CheckPriority(submission.tenant, submission.spec.priority()));
  return CheckDiskReserve(context_, 0);
}

absl::Status Acceptance::Begin(const Submission& submission) const {
  RETURN_IF_ERROR(context_.tenants.CountSubmit(submission.tenant));
  RETURN_IF_ERROR(Check(submission));
  if (submission.validate_only) {
    return absl::OkStatus();
  }
  return context_.tenants.CheckStored(context_.store.store(), submission.tenant, 1, 0);
}

absl::Status Acceptance::CheckModel(const std::string& name) const {
  return FindModel(context_.catalog, name).status();
}

absl::StatusOr<v1::Job> Acceptance::Accept(const Submission& submission,
                                           Upload& upload) {
  RETURN_IF_ERROR(Check(submission));
  const InFlight in_flight(*this, submission);
  if (!in_flight.first()) {
    return InProgress(submission.request_id);
  }
  const std::string fingerprint = Fingerprint(submission, upload.sha256());
  ASSIGN_OR_RETURN(std::optional<v1::Job> earlier, FindEarlier(submission, fingerprint));
  if (earlier) {
    return *std::move(earlier);
  }
  RETURN_IF_ERROR(CheckJobIdIsFree(submission));
  ASSIGN_OR_RETURN(const CatalogModel model, FindModel(context_.catalog, submission.spec.model()));
  ASSIGN_OR_RETURN(const std::string after_uid, FindPredecessor(submission));
  ASSIGN_OR_RETURN(v1::Compression compression,
                   ResolveCompression(submission.spec, model, context_));
  const v1::JobSpec spec = ResolveSpec(
      submission.spec, {.model = model.name,
                        .compute_type = context_.default_compute_type,
                        .compression = std::move(compression),
                        .sparse_attention = context_.default_sparse_attention,
                        .seed = DrawSeed(),
                        .most_priority = context_.tenants.QuotaOf(submission.tenant).priority});
  ASSIGN_OR_RETURN(const std::unique_ptr<InputScan> scan,
                   InputScan::Run({.fd = upload.fd(),
                                   .format = submission.format,
                                   .limits = context_.limits.parse,
                                   .max_rows = context_.limits.max_rows,
                                   .model = model.name,
                                   .scratch_directory = context_.uploads_directory,
                                   .stop = &context_.calls.draining_flag()}));
  if (spec.on_invalid_line() == v1::ON_INVALID_LINE_REJECT_JOB) {
    RETURN_IF_ERROR(scan->Rejection());
  }
  if (submission.validate_only) {
    return Preview(spec, *scan);
  }
  JobRecord record;
  record.create_time_us = context_.clock.WallMicros();
  record.uid = MakeUuid(record.create_time_us);
  record.id =
      JobKey(submission.tenant, submission.job_id.empty() ? MakeJobId() : submission.job_id);
  record.tenant = submission.tenant;
  record.request_id = submission.request_id;
  record.fingerprint = fingerprint;
  record.model = model.name;
  record.spec = spec.SerializeAsString();
  record.priority = spec.priority();
  record.input_format = submission.format;
  record.retry_of = submission.retry_of;
  record.after_uid = after_uid;
  if (spec.has_completion_window()) {
    record.expire_time_us = record.create_time_us + WindowMicros(spec.completion_window());
  }
  const std::string file =
      record.uid + (submission.format == v1::INPUT_FORMAT_JSONL ? ".jsonl" : ".requests");
  record.input_file = absl::StrCat(context_.jobs_prefix, "/", file);
  record.input_bytes = upload.committed_bytes();
  RETURN_IF_ERROR(upload.Publish(context_.jobs_directory, file));
  if (const absl::Status inserted = Insert(record, *scan); !inserted.ok()) {
    // After an I/O error nobody knows whether the job is there: the next start does, and sweeps.
    if (!absl::IsInternal(inserted)) {
      ::unlink(absl::StrCat(context_.jobs_directory, "/", file).c_str());
    }
    return inserted;
  }
  context_.metrics.Requests("failed").Increment(static_cast<double>(scan->num_invalid()));
  LOG(INFO) << "job_accepted job=" << record.id << " model=" << record.model
            << " rows=" << scan->num_rows() << " invalid_rows=" << scan->num_invalid()
            << " ignored_fields=" << scan->num_ignored_fields()
            << " input_bytes=" << upload.committed_bytes();
  return View(record.id);
}

absl::StatusOr<std::optional<v1::Job>> Acceptance::FindEarlier(const Submission& submission,
                                                               const std::string& fingerprint) {
  if (submission.request_id.empty()) {
    return std::optional<v1::Job>();
  }
  const auto record =
      context_.store.store().FindSubmission(submission.tenant, submission.request_id);
  if (absl::IsNotFound(record.status())) {
    return std::optional<v1::Job>();
  }
  RETURN_IF_ERROR(record.status());
  if (record->state == JobState::kReceiving) {
    return InProgress(submission.request_id);
  }
  if (record->fingerprint != fingerprint) {
    return MakeError(absl::StatusCode::kAlreadyExists, reason::kRequestIdReused,
                     absl::StrCat("request_id ", submission.request_id, " belongs to job ",
                                  JobName(record->id), ", whose input, options or job id differ"),
                     {{"job", JobName(record->id)}, {"request_id", submission.request_id}});
  }
  ASSIGN_OR_RETURN(v1::Job job, MakeJob(*record, MomentOf(context_)));
  job.set_attached(true);
  return std::optional<v1::Job>(std::move(job));
}

absl::Status Acceptance::CheckJobIdIsFree(const Submission& submission) {
  if (submission.job_id.empty()) {
    return absl::OkStatus();
  }
  const std::string key = JobKey(submission.tenant, submission.job_id);
  const absl::Status found = context_.store.store().GetJob(key).status();
  if (found.ok()) {
    return JobExists(key);
  }
  return absl::IsNotFound(found) ? absl::OkStatus() : found;
}

// By its uid: the id may become another job's, and a wait for a later job could close a circle.
absl::StatusOr<std::string> Acceptance::FindPredecessor(const Submission& submission) {
  if (submission.spec.after_job().empty() || !submission.retry_of.empty()) {
    return submission.after_uid;
  }
  ASSIGN_OR_RETURN(const std::string id,
                   ParseJobName(submission.tenant, submission.spec.after_job()));
  const absl::StatusOr<JobRecord> job = context_.store.store().GetJob(id);
  if (!job.ok()) {
    return JobError(job.status(), id);
  }
  return job->uid;
}

absl::Status Acceptance::Insert(const JobRecord& record, InputScan& scan) {
  const absl::Status inserted = InsertRows(record, scan);
  if (absl::IsAlreadyExists(inserted)) {
    return JobExists(record.id);
  }
  RETURN_IF_ERROR(inserted);
  Failpoint("job_committed");
  return absl::OkStatus();
}

absl::Status Acceptance::InsertRows(const JobRecord& record, InputScan& scan) {
  // The job's record goes with its first rows and becomes visible with its last: a small job is
  // one transaction.
  bool first = true;
  int64_t inserted = 0;
  const absl::Status status =
      scan.ForEachBatch(kRowsPerWrite, [&](const std::vector<NewRow>& rows) -> absl::Status {
        const bool last = inserted + static_cast<int64_t>(rows.size()) == scan.num_rows();
        const auto insert = [&, opens = first](JobStore& store) -> absl::Status {
          if (opens) {
            RETURN_IF_ERROR(context_.tenants.CheckStored(store, record.tenant, scan.num_rows(),
                                                         record.input_bytes));
            RETURN_IF_ERROR(store.InsertJob(record));
          }
          RETURN_IF_ERROR(store.InsertRows(record.id, rows));
          return last ? store.FinishReceiving(record.id, context_.clock.WallMicros())
                      : absl::OkStatus();
        };
        RETURN_IF_ERROR(context_.store.WriteAndWait(last ? record.id : "", insert));
        first = false;
        Failpoint("rows_committed");
        inserted += static_cast<int64_t>(rows.size());
        if (last) {
          return absl::OkStatus();
        }
        // The ballast is not for rows.
        RETURN_IF_ERROR(CheckDiskReserve(context_, 0));
        return context_.calls.draining() ? Draining() : absl::OkStatus();
      });
  if (!status.ok() && !first) {
    // Best effort: a job that stays in kReceiving is deleted by the next start.
    const absl::Status removed = context_.store.WriteAndWait(
        "", [&](JobStore& store) { return store.DeleteJob(record.id); });
    LOG(WARNING) << "job_insert_undone job=" << record.id << " removed=" << removed.ToString();
  }
  return status;
}

absl::StatusOr<v1::Job> Acceptance::View(const std::string& job_key) {
  ASSIGN_OR_RETURN(const JobRecord record, context_.store.store().GetJob(job_key));
  return MakeJob(record, MomentOf(context_));
}

}  // namespace nightshift
