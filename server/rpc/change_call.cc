#include "server/rpc/change_call.h"

#include <memory>

#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {

void ChangeCall::Start() {
  const auto id = ParseJobName(caller().tenant, name_);
  if (!id.ok()) {
    return Respond(id.status());
  }
  const auto self = std::static_pointer_cast<ChangeCall>(shared_from_this());
  const absl::Status queued = rpc_.store.Write(
      *id, [self, job_id = *id](JobStore& store) { return self->Change(store, job_id); },
      [self, job_id = *id](const absl::Status& status) {
        if (!status.ok()) {
          return self->Respond(status);
        }
        Failpoint("change_committed");
        self->ReadBack(job_id);
      });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::Status ChangeCall::Change(JobStore& store, const std::string& id) const {
  const auto record = store.GetJob(id);
  if (!record.ok()) {
    return JobError(record.status(), id);
  }
  RETURN_IF_ERROR(CheckEtag(*record, etag_));
  const absl::Status changed = (store.*change_.apply)(id);
  if (absl::IsFailedPrecondition(changed)) {
    const std::string state = v1::JobState_Name(WireState(record->state));
    return MakeError(absl::StatusCode::kFailedPrecondition, reason::kStateConflict,
                     absl::StrCat("job ", JobName(id),
                                  IsTerminal(record->state) ? " has ended already (" : " is ending (",
                                  StateText(record->state), "); ", change_.refused),
                     {{"job", JobName(id)}, {"state", state}});
  }
  return changed;
}

void ChangeCall::ReadBack(const std::string& id) {
  const auto self = std::static_pointer_cast<ChangeCall>(shared_from_this());
  const absl::Status queued = rpc_.store.Read([self, id](JobStore& store) {
    const auto record = store.GetJob(id);
    self->Respond(record.ok() ? MakeJob(*record, MomentOf(self->rpc_))
                              : absl::StatusOr<v1::Job>(JobError(record.status(), id)));
  });
  if (!queued.ok()) {
    Respond(queued);
  }
}

}  // namespace nightshift
