#include "server/rpc/wait_call.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"

#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::system_clock;

// The answer leaves before the client's own deadline cuts the call.
constexpr milliseconds kDeadlineMargin(200);

absl::Status CheckRequest(const v1::WaitJobRequest& request) {
  if (!v1::WaitJobRequest::Until_IsValid(request.until())) {
    return MakeFieldError(
        reason::kFieldInvalid,
        {{"until", absl::StrCat("has the unknown number ", static_cast<int>(request.until()))}});
  }
  if (request.timeout().seconds() < 0 || request.timeout().nanos() < 0) {
    return MakeFieldError(reason::kFieldInvalid, {{"timeout", "is negative"}});
  }
  if (request.results() < 0) {
    return MakeFieldError(
        reason::kFieldInvalid,
        {{"results", absl::StrCat("is ", request.results(), ", must be 0 or more")}});
  }
  return absl::OkStatus();
}

microseconds Timeout(const google::protobuf::Duration& asked, std::chrono::seconds most) {
  if (asked.seconds() >= most.count() || (asked.seconds() == 0 && asked.nanos() == 0)) {
    return most;
  }
  return std::chrono::seconds(asked.seconds()) + microseconds(asked.nanos() / 1000);
}

}  // namespace

void WaitCall::Start() {
  if (rpc_.calls.draining()) {
    return Respond(Draining());
  }
  if (const absl::Status checked = CheckRequest(request_); !checked.ok()) {
    return Respond(checked);
  }
  const auto id = ParseJobName(caller().tenant, request_.name());
  if (!id.ok()) {
    return Respond(id.status());
  }
  absl::StatusOr<TenantLimits::Place> place = rpc_.tenants.OpenStream(caller().tenant);
  if (!place.ok()) {
    return Respond(place.status());
  }
  place_ = *std::move(place);
  job_id_ = *id;
  const std::weak_ptr<WaitCall> weak = Self();
  subscription_ = rpc_.store.events().Subscribe(job_id_, [weak] {
    if (const auto self = weak.lock()) {
      self->Wake();
    }
  });
  open_call_ = rpc_.calls.Add(weak);
  SetAlarm();
  Wake();
}

void WaitCall::SetAlarm() {
  const system_clock::time_point now = system_clock::now();
  const system_clock::time_point until =
      std::min(now + Timeout(request_.timeout(), std::chrono::seconds(rpc_.limits.max_wait_s)), context().deadline() - kDeadlineMargin);
  alarm_.Set(std::max(now, until), [weak = std::weak_ptr<WaitCall>(Self())](bool expired) {
    const auto self = weak.lock();
    if (expired && self != nullptr) {
      self->timed_out_.store(true);
      self->Wake();
    }
  });
}

void WaitCall::Wake() {
  if (pending_looks_.exchange(1) != 0) {
    return;
  }
  const absl::Status queued =
      rpc_.store.Read([self = Self()](JobStore& store) { self->Look(store); });
  if (!queued.ok()) {
    Respond(queued);
  }
}

void WaitCall::Look(JobStore& store) {
  // Changes from here on ask for another look.
  pending_looks_.store(0);
  const bool ends = timed_out_.load() || rpc_.calls.draining();
  const auto record = store.GetJob(job_id_);
  if (!record.ok()) {
    return Respond(JobError(record.status(), job_id_));
  }
  auto job = MakeJob(*record, MomentOf(rpc_));
  if (!job.ok() || ends || Reached(*job)) {
    Respond(std::move(job));
  }
}

bool WaitCall::Reached(const v1::Job& job) const {
  if (job.state() >= v1::JOB_STATE_SUCCEEDED) {
    return true;
  }
  if (request_.results() > 0) {
    return job.last_seq() >= request_.results();
  }
  return request_.until() == v1::WaitJobRequest::UNTIL_RUNNING &&
         job.state() >= v1::JOB_STATE_RUNNING;
}

void WaitCall::Ended() {
  alarm_.Cancel();
  rpc_.store.events().Unsubscribe(subscription_);
  rpc_.calls.Remove(open_call_);
}

}  // namespace nightshift
