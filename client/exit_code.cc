#include "client/exit_code.h"

namespace nightshift {

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
