#include "server/rpc/retry_call.h"

#include <algorithm>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"
#include "server/rpc/upload.h"
#include "server/scheduling/job_input.h"

namespace nightshift {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr int64_t kRowsPerRead = 4096;

absl::Status Conflict(const JobRecord& job, absl::string_view why) {
  const std::string state = v1::JobState_Name(WireState(job.state));
  return MakeError(absl::StatusCode::kFailedPrecondition, reason::kStateConflict,
                   absl::StrCat("job ", JobName(job.id), " ", why),
                   {{"job", JobName(job.id)}, {"state", state}});
}

// Why no row of a job is worth another try.
std::string WhyNothing(const RowCounts& counts) {
  return counts.succeeded == counts.total
             ? absl::StrCat("has nothing to try again: all of its ", counts.total,
                            " requests succeeded")
             : absl::StrCat("has nothing to try again: its ", counts.total - counts.succeeded,
                            " failed requests were refused for what they are and would be again; "
                            "their results say why, correct these rows and submit them");
}

// A row that was refused for what it is would be refused again.
bool MayBeTriedAgain(const v1::Result& result) {
  return result.has_error() &&
         result.error().code() != static_cast<int>(absl::StatusCode::kInvalidArgument);
}

// Of an input that cannot be read now, or is damaged.
absl::Status InputError(const JobRecord& job, const absl::Status& status) {
  return MakeError(status.code(),
                   absl::IsUnavailable(status) ? reason::kStoreBusy : reason::kRecordCorrupt,
                   status.message(), {{"job", JobName(job.id)}});
}

// The row as it stands in an input file of this format.
std::string Frame(int32_t format, const std::string& row) {
  if (format == v1::INPUT_FORMAT_JSONL) {
    return row + "\n";
  }
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.WriteVarint64(row.size());
    coded.WriteString(row);
  }
  return bytes;
}

}  // namespace

void RetryCall::Start() {
  const auto self = std::static_pointer_cast<RetryCall>(shared_from_this());
  const absl::Status pushed = rpc_.scans.Push([self] { self->Respond(self->Run()); });
  if (!pushed.ok()) {
    Respond(pushed);
  }
}

absl::StatusOr<v1::Job> RetryCall::Run() {
  ASSIGN_OR_RETURN(const std::string id, ParseJobName(caller().tenant, request_.name()));
  const absl::StatusOr<JobRecord> old = rpc_.store.store().GetJob(id);
  if (!old.ok()) {
    return JobError(old.status(), id);
  }
  if (!IsTerminal(old->state)) {
    return Conflict(*old, absl::StrCat("has not ended (", StateText(old->state),
                                       "); wait for its end or cancel it"));
  }
  if (old->purged) {
    return MakeError(absl::StatusCode::kFailedPrecondition, reason::kResultsExpired,
                     absl::StrCat("input and results of job ", JobName(id),
                                  " are not kept any more; submit its input again"),
                     {{"job", JobName(id)}});
  }
  Submission submission = {.tenant = caller().tenant,
                           .job_id = {},
                           .request_id = request_.request_id(),
                           .spec = {},
                           .format = static_cast<v1::InputFormat>(old->input_format),
                           .retry_of = id,
                           .after_uid = old->after_uid};
  if (!submission.spec.ParseFromString(old->spec)) {
    return MakeError(absl::StatusCode::kDataLoss, reason::kRecordCorrupt,
                     absl::StrCat("the spec of job ", JobName(id), " does not parse"),
                     {{"job", JobName(id)}});
  }
  RETURN_IF_ERROR(acceptance_.Begin(submission));
  ASSIGN_OR_RETURN(const std::vector<bool> wanted, FindRows(*old));
  if (std::find(wanted.begin(), wanted.end(), true) == wanted.end()) {
    return Conflict(*old, WhyNothing(old->counts));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<Upload> rows, Upload::Create(rpc_.uploads_directory));
  RETURN_IF_ERROR(CopyRows(*old, wanted, *rows));
  rows->Finish();
  return acceptance_.Accept(submission, *rows);
}

absl::StatusOr<std::vector<bool>> RetryCall::FindRows(const JobRecord& old) const {
  std::vector<bool> wanted(static_cast<size_t>(old.counts.total), false);
  int64_t after_seq = 0;
  while (after_seq < old.last_seq) {
    ASSIGN_OR_RETURN(const std::vector<StoredResult> results,
                     rpc_.store.store().ReadResults(old.id, after_seq, kReadBytes));
    if (results.empty()) {
      return JobError(absl::NotFoundError("deleted meanwhile"), old.id);
    }
    for (const StoredResult& stored : results) {
      v1::Result result;
      if (stored.index >= 0 && stored.index < old.counts.total &&
          result.ParseFromString(stored.body) && MayBeTriedAgain(result)) {
        wanted[static_cast<size_t>(stored.index)] = true;
      }
    }
    after_seq = results.back().seq;
  }
  return wanted;
}

absl::Status RetryCall::CopyRows(const JobRecord& old, const std::vector<bool>& wanted,
                                 Upload& target) const {
  const std::string folder =
      rpc_.jobs_directory.substr(0, rpc_.jobs_directory.size() - rpc_.jobs_prefix.size());
  JobInput input(folder + old.input_file);
  std::string pending;
  int64_t next = 0;
  while (next < old.counts.total) {
    ASSIGN_OR_RETURN(const std::vector<StoredRow> rows,
                     rpc_.store.store().ReadRows(old.id, next, kRowsPerRead));
    if (rows.empty()) {
      return JobError(absl::NotFoundError("deleted meanwhile"), old.id);
    }
    for (const StoredRow& row : rows) {
      if (!wanted[static_cast<size_t>(row.index)]) {
        continue;
      }
      const absl::StatusOr<std::string> bytes = input.ReadRow(row.offset, row.length, row.crc);
      if (!bytes.ok()) {
        return InputError(old, bytes.status());
      }
      pending += Frame(old.input_format, *bytes);
      if (static_cast<int64_t>(pending.size()) >= kReadBytes) {
        RETURN_IF_ERROR(target.Append(pending));
        pending.clear();
      }
    }
    next = rows.back().index + 1;
  }
  return target.Append(pending);
}

}  // namespace nightshift
