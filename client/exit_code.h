// The exit codes of `nightshift`, a contract with scripts.
#pragma once

#include "absl/status/status.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

enum class ExitCode : int {
  kOk = 0,  // all requests succeeded
  kOther = 1,
  kUsage = 2,           // wrong command line
  kFailedRequests = 3,  // the job finished, some requests failed
  kJobFailed = 4,
  kJobStopped = 5,  // cancelled or expired
  kNotFound = 6,    // job or model
  kAuth = 7,
  kUnavailable = 8,  // no daemon, or not in time
  kInputInvalid = 9,
  kQuotaOrDisk = 10,
  kInterrupted = 130,
};

// Of a command that ended with this error.
ExitCode ExitCodeOf(const absl::Status& error);

// Of a command that waited for a job; kUnavailable for a job that has not ended.
ExitCode ExitCodeOf(v1::JobState state, const v1::JobCounts& counts);

}  // namespace nightshift
