// Rows of a job that ends before they ran: cancelled, its time was up, or it cannot run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "server/input/parse_limits.h"
#include "server/input/result_builder.h"
#include "server/scheduling/job_context.h"
#include "server/store/job_store.h"

namespace nightshift {

// The result of one row of a job that is kCancelling, as its end_state says: kCancelled, kExpired, or
// kFailed with the job's error. ErrorInfo metadata "code" is what batch files call it:
// batch_cancelled, batch_expired or batch_failed.
FinishedRow EndRowEarly(const JobRecord& job, const ResultHeader& header);

// As EndRowEarly, for up to `limit` rows that wait in the store; empty when none is left. Reads the
// rows' input for their ids; an unreadable one ends without. With `may_try_again` input that cannot
// be read at present ends none: UNAVAILABLE.
absl::StatusOr<std::vector<FinishedRow>> EndWaitingRows(JobStore& store, const JobRecord& job,
                                                        const JobContext& context, int64_t limit,
                                                        const ParseLimits& limits,
                                                        bool may_try_again);

// Inside a write: JobStore::FailJob, unless the job is gone, be it that its id is another's by now.
absl::Status FailJob(JobStore& store, const JobRecord& job, const std::string& error,
                     int64_t now_us);

// The error of a job that cannot run, as JobRecord.error keeps it; its rows get the same.
std::string SerializeJobError(const std::string& reason, const absl::Status& error);

}  // namespace nightshift
