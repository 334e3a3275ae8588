// The exit codes of `nightshift`, of `nightshiftd` and of its tools: one table, a contract with
// scripts.
#pragma once

#include <string>

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

struct ExitCodeMeaning {
  ExitCode code;
  const char* meaning;
};

inline constexpr ExitCodeMeaning kExitCodes[] = {
    {ExitCode::kOk, "all requests succeeded"},
    {ExitCode::kOther, "other"},
    {ExitCode::kUsage, "usage"},
    {ExitCode::kFailedRequests, "finished with failed requests"},
    {ExitCode::kJobFailed, "job failed"},
    {ExitCode::kJobStopped, "job cancelled or expired"},
    {ExitCode::kNotFound, "job, model or file not found"},
    {ExitCode::kAuth, "not allowed"},
    {ExitCode::kUnavailable, "daemon unavailable, not in time, or job not finished"},
    {ExitCode::kInputInvalid, "input invalid or damaged"},
    {ExitCode::kQuotaOrDisk, "disk full or a budget too small"},
    {ExitCode::kConfig, "configuration of the daemon"},
    {ExitCode::kInterrupted, "interrupted"},
};

// The table, as help texts show it: lines of at most 96 columns.
std::string ExitCodesText();

// Of a command that ended with this error.
ExitCode ExitCodeOf(const absl::Status& error);

}  // namespace nightshift
