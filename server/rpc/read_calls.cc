#include "server/rpc/read_calls.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxTimeSeconds = 253'402'300'799;  // the end of 9999
constexpr size_t kMaxLabelBytes = 64 + 1 + 512;
// A client takes messages of 4 MiB; one job is smaller than a call that submits it.
constexpr size_t kMaxPageBytes = 3 << 20;

FieldViolation UnknownNumber(const std::string& field, int number) {
  return {field, absl::StrCat("has the unknown number ", number)};
}

void Narrow(v1::JobView view, v1::Job& job) {
  if (view == v1::JOB_VIEW_BASIC) {
    job.clear_spec();
    job.clear_report();
  }
}

int64_t Micros(const google::protobuf::Timestamp& time) {
  return time.seconds() * 1'000'000 + time.nanos() / 1000;
}

}  // namespace

void GetJobCall::Start() {
  const auto id = ParseJobName(caller().tenant, request_.name());
  if (!id.ok()) {
    return Respond(id.status());
  }
  if (!v1::JobView_IsValid(request_.view())) {
    return Respond(MakeFieldError(reason::kFieldInvalid, {UnknownNumber("view", request_.view())}));
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
  ASSIGN_OR_RETURN(v1::Job job, MakeJob(*record, MomentOf(rpc_)));
  Narrow(request_.view(), job);
  return job;
}

void ListJobsCall::Start() {
  const auto self = std::static_pointer_cast<ListJobsCall>(shared_from_this());
  const absl::Status queued =
      rpc_.store.Read([self](JobStore& store) { self->Respond(self->Read(store)); });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::Status ListJobsCall::Check() const {
  std::vector<FieldViolation> violations;
  if (!v1::JobState_IsValid(request_.state())) {
    violations.push_back(UnknownNumber("state", request_.state()));
  }
  if (!v1::JobView_IsValid(request_.view())) {
    violations.push_back(UnknownNumber("view", request_.view()));
  }
  for (const auto& [field, time] : {std::pair("created_from", &request_.created_from()),
                                    std::pair("created_before", &request_.created_before())}) {
    if (time->seconds() < 0 || time->seconds() > kMaxTimeSeconds || time->nanos() < 0) {
      violations.push_back({field, "is no time between the years 1970 and 9999"});
    }
  }
  if (request_.label().size() > kMaxLabelBytes) {
    violations.push_back({"label", absl::StrCat("has ", request_.label().size(), " bytes, at most ",
                                                kMaxLabelBytes)});
  }
  return violations.empty() ? absl::OkStatus() : MakeFieldError(reason::kFieldInvalid, violations);
}

JobFilter ListJobsCall::Filter() const {
  JobFilter filter;
  filter.tenant = caller().tenant;
  filter.from_create_time_us = Micros(request_.created_from());
  if (request_.has_created_before()) {
    filter.before_create_time_us = Micros(request_.created_before());
  }
  if (request_.state() != v1::JOB_STATE_UNSPECIFIED) {
    filter.state = StoredState(request_.state());
  }
  return filter;
}

bool ListJobsCall::HasLabel(const v1::Job& job) const {
  if (request_.label().empty()) {
    return true;
  }
  const std::pair<std::string, std::string> wanted =
      absl::StrSplit(request_.label(), absl::MaxSplits('=', 1));
  const auto found = job.labels().find(wanted.first);
  const bool any_value = request_.label().find('=') == std::string::npos;
  return found != job.labels().end() && (any_value || found->second == wanted.second);
}

absl::StatusOr<v1::ListJobsResponse> ListJobsCall::Read(JobStore& store) {
  constexpr int64_t kDefaultPage = 50;
  constexpr int64_t kMaxPage = 1000;
  RETURN_IF_ERROR(Check());
  ASSIGN_OR_RETURN(const int64_t page_size, PageSize(request_.page_size(), kDefaultPage, kMaxPage));
  v1::ListJobsRequest list_of = request_;
  list_of.clear_page_size();
  list_of.clear_page_token();
  const std::string list =
      absl::StrCat("jobs of ", caller().tenant, " ", list_of.SerializeAsString());
  JobFilter filter = Filter();
  if (!request_.page_token().empty()) {
    ASSIGN_OR_RETURN(const PagePosition position, rpc_.tokens.Read(list, request_.page_token()));
    filter.before_create_time_us = position.number;
    filter.before_id = position.text;
  }
  v1::ListJobsResponse response;
  if (request_.state() != v1::JOB_STATE_UNSPECIFIED && !filter.state) {
    return response;  // no job of this version is ever in that state
  }
  // One more than the page holds tells whether there is a next one.
  ASSIGN_OR_RETURN(std::vector<JobRecord> records, store.ListJobs(filter, page_size + 1));
  bool more = static_cast<int64_t>(records.size()) > page_size;
  records.resize(std::min(records.size(), static_cast<size_t>(page_size)));
  const ViewMoment moment = MomentOf(rpc_);
  size_t bytes = 0;
  const JobRecord* last = nullptr;
  for (const JobRecord& record : records) {
    ASSIGN_OR_RETURN(v1::Job job, MakeJob(record, moment));
    if (HasLabel(job)) {
      Narrow(request_.view(), job);
      bytes += job.ByteSizeLong();
      if (bytes > kMaxPageBytes && response.jobs_size() > 0) {
        more = true;
        break;
      }
      *response.add_jobs() = std::move(job);
    }
    last = &record;
  }
  if (more) {
    response.set_next_page_token(rpc_.tokens.Write(list, {last->create_time_us, last->id}));
  }
  return response;
}

}  // namespace nightshift
