// The exit code of a command that waited for a job.
#pragma once

#include "kernels/base/exit_code.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// kUnavailable for a job that has not ended.
ExitCode ExitCodeOf(v1::JobState state, const v1::JobCounts& counts);

}  // namespace nightshift
