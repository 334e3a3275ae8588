#include "server/rpc/cancel_call.h"

#include <memory>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {
namespace {

absl::Status EtagMismatch(const std::string& id) {
  return MakeError(absl::StatusCode::kAborted, "ETAG_MISMATCH",
                   absl::StrCat("job ", JobName(id), " has changed since this etag was read"),
                   {{"job", JobName(id)}});
}

}  // namespace

void CancelCall::Start() {
  const auto id = ParseJobName(request_.name());
  if (!id.ok()) {
    return Respond(id.status());
  }
  const auto self = std::static_pointer_cast<CancelCall>(shared_from_this());
  const absl::Status queued = rpc_.store.Write(
      *id, [self, job_id = *id](JobStore& store) { return self->Cancel(store, job_id); },
      [self, job_id = *id](const absl::Status& status) {
        if (!status.ok()) {
          return self->Respond(status);
        }
        self->ReadBack(job_id);
      });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::Status CancelCall::Cancel(JobStore& store, const std::string& id) const {
  const auto record = store.GetJob(id);
  if (!record.ok()) {
    return JobError(record.status(), id);
  }
  ASSIGN_OR_RETURN(const v1::Job job, MakeJob(*record, 0.0));
  if (!request_.etag().empty() && request_.etag() != job.etag()) {
    return EtagMismatch(id);
  }
  const absl::Status cancelled = store.RequestCancel(id);
  if (absl::IsFailedPrecondition(cancelled)) {
    return MakeError(
        absl::StatusCode::kFailedPrecondition, reason::kStateConflict,
        absl::StrCat("job ", JobName(id), " has ended already (", v1::JobState_Name(job.state()),
                     "); what it has is kept"),
        {{"job", JobName(id)}, {"state", v1::JobState_Name(job.state())}});
  }
  return cancelled;
}

void CancelCall::ReadBack(const std::string& id) {
  const auto self = std::static_pointer_cast<CancelCall>(shared_from_this());
  const absl::Status queued = rpc_.store.Read([self, id](JobStore& store) {
    const auto record = store.GetJob(id);
    self->Respond(record.ok() ? MakeJob(*record, 0.0)
                              : absl::StatusOr<v1::Job>(JobError(record.status(), id)));
  });
  if (!queued.ok()) {
    Respond(queued);
  }
}

}  // namespace nightshift
