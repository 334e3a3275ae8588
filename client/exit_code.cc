#include "client/exit_code.h"

namespace nightshift {

ExitCode ExitCodeOf(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kOk:
      return ExitCode::kOk;
    case absl::StatusCode::kNotFound:
      return ExitCode::kNotFound;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      return ExitCode::kAuth;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
      return ExitCode::kUnavailable;
    case absl::StatusCode::kInvalidArgument:
      return ExitCode::kInputInvalid;
    case absl::StatusCode::kResourceExhausted:
      return ExitCode::kQuotaOrDisk;
    case absl::StatusCode::kCancelled:
      return ExitCode::kInterrupted;
    default:
      return ExitCode::kOther;
  }
}

ExitCode ExitCodeOf(v1::JobState state, const v1::JobCounts& counts) {
  switch (state) {
    case v1::JOB_STATE_SUCCEEDED:
      return counts.failed() > 0 ? ExitCode::kFailedRequests : ExitCode::kOk;
    case v1::JOB_STATE_FAILED:
      return ExitCode::kJobFailed;
    case v1::JOB_STATE_CANCELLED:
    case v1::JOB_STATE_EXPIRED:
      return ExitCode::kJobStopped;
    default:
      return ExitCode::kUnavailable;
  }
}

}  // namespace nightshift
