#include "server/rpc/read_calls.h"

#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {

void GetJobCall::Start() {
  const auto id = ParseJobName(name_);
  if (!id.ok()) {
    return Respond(id.status());
  }
  const auto self = std::static_pointer_cast<GetJobCall>(shared_from_this());
  const absl::Status queued = rpc_.store.Read(
      [self, job_id = *id](JobStore& store) { self->Respond(self->Read(store, job_id)); });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::StatusOr<v1::Job> GetJobCall::Read(JobStore& store, const std::string& id) {
  const auto record = store.GetJob(id);
  if (!record.ok()) {
    return JobError(record.status(), id);
  }
  return MakeJob(*record, rpc_.runner_status().tokens_per_second);
}

void ListJobsCall::Start() {
  const auto self = std::static_pointer_cast<ListJobsCall>(shared_from_this());
  const absl::Status queued =
      rpc_.store.Read([self](JobStore& store) { self->Respond(self->Read(store)); });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::StatusOr<v1::ListJobsResponse> ListJobsCall::Read(JobStore& store) {
  constexpr int64_t kDefaultPage = 50;
  constexpr int64_t kMaxPage = 1000;
  if (!v1::JobState_IsValid(request_.state())) {
    return MakeFieldError(
        reason::kFieldInvalid,
        {{"state", absl::StrCat("has the unknown number ", static_cast<int>(request_.state()))}});
  }
  ASSIGN_OR_RETURN(const int64_t page_size, PageSize(request_.page_size(), kDefaultPage, kMaxPage));
  const std::string list = absl::StrCat("jobs state=", static_cast<int>(request_.state()));
  JobFilter filter;
  if (!request_.page_token().empty()) {
    ASSIGN_OR_RETURN(const PagePosition position, rpc_.tokens.Read(list, request_.page_token()));
    filter.before_create_time_us = position.number;
    filter.before_id = position.text;
  }
  v1::ListJobsResponse response;
  if (request_.state() != v1::JOB_STATE_UNSPECIFIED) {
    filter.state = StoredState(request_.state());
    if (!filter.state) {
      return response;  // no job of this version is ever in that state
    }
  }
  // One more than the page holds tells whether there is a next one.
  ASSIGN_OR_RETURN(std::vector<JobRecord> records, store.ListJobs(filter, page_size + 1));
  const bool more = static_cast<int64_t>(records.size()) > page_size;
  if (more) {
    records.resize(static_cast<size_t>(page_size));
    response.set_next_page_token(
        rpc_.tokens.Write(list, {records.back().create_time_us, records.back().id}));
  }
  const double tokens_per_second = rpc_.runner_status().tokens_per_second;
  for (const JobRecord& record : records) {
    ASSIGN_OR_RETURN(*response.add_jobs(), MakeJob(record, tokens_per_second));
  }
  return response;
}

}  // namespace nightshift
