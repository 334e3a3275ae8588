#include "server/scheduling/early_end.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/scheduling/request_preparer.h"

namespace nightshift {
namespace {

google::rpc::Status RowErrorOf(const JobRecord& job) {
  if (job.end_state == JobState::kExpired) {
    return ToRpcStatus(MakeError(
        absl::StatusCode::kDeadlineExceeded, reason::kJobExpired,
        absl::StrCat("the completion window of job ", job.id, " closed before this request ended"),
        {{"job", job.id}, {"code", "batch_expired"}}));
  }
  if (job.end_state == JobState::kCancelled) {
    return ToRpcStatus(
        MakeError(absl::StatusCode::kCancelled, reason::kJobCancelled,
                  absl::StrCat("job ", job.id, " was cancelled before this request ended"),
                  {{"job", job.id}, {"code", "batch_cancelled"}}));
  }
  google::rpc::Status error;
  if (!error.ParseFromString(job.error) || error.code() == 0) {
    return ToRpcStatus(MakeError(absl::StatusCode::kInternal, reason::kJobFailed,
                                 absl::StrCat("job ", job.id, " failed"),
                                 {{"job", job.id}, {"code", "batch_failed"}}));
  }
  return error;
}

RowState OutcomeOf(const JobRecord& job) {
  switch (job.end_state) {
    case JobState::kExpired:
      return RowState::kExpired;
    case JobState::kFailed:
      return RowState::kFailed;
    default:
      return RowState::kCancelled;
  }
}

}  // namespace

FinishedRow EndRowEarly(const JobRecord& job, const ResultHeader& header) {
  return {.job_id = job.id,
          .job_uid = job.uid,
          .index = header.index,
          .outcome = OutcomeOf(job),
          .body = BuildErrorResult(header, RowErrorOf(job))};
}

absl::StatusOr<std::vector<FinishedRow>> EndWaitingRows(JobStore& store, const JobRecord& job,
                                                        const JobContext& context, int64_t limit,
                                                        const ParseLimits& limits,
                                                        bool may_try_again) {
  ASSIGN_OR_RETURN(const std::vector<ClaimedRow> rows, store.NextUnfinished(job.id, limit));
  std::vector<FinishedRow> finished;
  for (const ClaimedRow& row : rows) {
    absl::StatusOr<ResultHeader> header = ReadResultHeader(context, row, limits);
    if (absl::IsUnavailable(header.status()) && may_try_again) {
      return header.status();
    }
    if (!header.ok()) {
      LOG(ERROR) << "input_unreadable job=" << job.id << " index=" << row.index << " error=\""
                 << header.status().message() << "\"";
      header = ResultHeader{.index = row.index, .line = row.line, .custom_id = {}};
    }
    finished.push_back(EndRowEarly(job, *header));
  }
  return finished;
}

absl::Status FailJob(JobStore& store, const JobRecord& job, const std::string& error,
                     int64_t now_us) {
  const absl::StatusOr<JobRecord> present = store.GetJob(job.id);
  const bool is_gone =
      absl::IsNotFound(present.status()) || (present.ok() && present->uid != job.uid);
  return is_gone ? absl::OkStatus() : store.FailJob(job.id, error, now_us);
}

std::string SerializeJobError(const std::string& reason, const absl::Status& error) {
  return ToRpcStatus(MakeError(error.code(), reason, error.message(), {{"code", "batch_failed"}}))
      .SerializeAsString();
}

}  // namespace nightshift
