// The exit codes of `nightshift`, of `nightshiftd` and of its tools: one table, a contract with
// scripts.
#pragma once

#include "absl/status/status.h"

namespace nightshift {

enum class ExitCode : int {
  kOk = 0,  // all requests succeeded
  kOther = 1,
  kUsage = 2,           // wrong command line
  kFailedRequests = 3,  // the job finished, some requests failed
  kJobFailed = 4,
  kJobStopped = 5,  // cancelled or expired
  kNotFound = 6,    // a job, a model, a file
  kAuth = 7,
  kUnavailable = 8,  // no daemon, or not in time: also a job that has not ended
  kInputInvalid = 9,
  kQuotaOrDisk = 10,
  kConfig = 78,  // of the daemon (sysexits.h), so that systemd does not restart it
  kInterrupted = 130,
};

// The table, as help texts show it.
inline constexpr char kExitCodesText[] =
    R"(Exit codes: 0 all requests succeeded, 1 other, 2 usage, 3 finished with failed requests,
  4 job failed, 5 job cancelled or expired, 6 job, model or file not found, 7 not allowed,
  8 daemon unavailable, not in time, or job not finished, 9 input invalid or damaged,
  10 disk full or a budget too small, 78 configuration of the daemon, 130 interrupted.)";

// Of a command that ended with this error.
ExitCode ExitCodeOf(const absl::Status& error);

}  // namespace nightshift
