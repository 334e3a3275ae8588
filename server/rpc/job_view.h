// A stored job as the API shows it. Pure.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "server/scheduling/time_left.h"
#include "server/store/job_store.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// What a view tells beside the record.
struct ViewMoment {
  int64_t now_us = 0;            // wall clock
  double tokens_per_second = 0;  // of the daemon now; 0 for unknown
  // By id of a job, as it was then; may be null.
  std::shared_ptr<const std::map<std::string, TimeLeft>> times_left;
  int64_t times_left_us = 0;
  JobStore* store = nullptr;  // for the job that it waits for; may be null
  std::string loaded_model;   // of the daemon now
  std::map<std::string, std::string> model_waits;  // as RunnerStatus
  bool drained = false;                            // the daemon runs nothing
};

// Reads the store, if at all, for one job. DATA_LOSS when the record does not parse.
absl::StatusOr<v1::Job> MakeJob(const JobRecord& record, const ViewMoment& moment);

// Changes with what a caller may decide by: state, results, whether it runs.
std::string JobEtag(const JobRecord& record);
// ABORTED (ETAG_MISMATCH) when `etag` is not empty and not the job's.
absl::Status CheckEtag(const JobRecord& record, absl::string_view etag);

v1::JobState WireState(JobState state);
// For messages: "running".
std::string StateText(JobState state);
// Empty for v1 states that the store does not have.
std::optional<JobState> StoredState(v1::JobState state);
v1::JobCounts MakeCounts(const RowCounts& counts);

// What the store knows a job by: "TENANT/ID", of the tenant "default" the id alone. So no caller
// can even name another tenant's job.
std::string JobKey(absl::string_view tenant, absl::string_view id);

// "jobs/{id}" of the job with this key.
std::string JobName(absl::string_view key);
// The key of a caller's job of this name. INVALID_ARGUMENT (FIELD_INVALID, name) for another form.
absl::StatusOr<std::string> ParseJobName(absl::string_view tenant, absl::string_view name);

// NOT_FOUND from the store as callers see it (JOB_NOT_FOUND); other errors unchanged.
absl::Status JobError(absl::Status status, absl::string_view key);

}  // namespace nightshift
