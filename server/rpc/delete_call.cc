#include "server/rpc/delete_call.h"

#include <memory>

#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"

namespace nightshift {

void DeleteCall::Start() {
  const auto id = ParseJobName(caller().tenant, request_.name());
  if (!id.ok()) {
    return Respond(id.status());
  }
  const auto self = std::static_pointer_cast<DeleteCall>(shared_from_this());
  const absl::Status queued = rpc_.store.Write(
      *id, [self, job_id = *id](JobStore& store) { return self->Delete(store, job_id); },
      [self, job_id = *id](const absl::Status& status) {
        if (status.ok()) {
          LOG(INFO) << "job_deleted job=" << job_id;
          Failpoint("delete_committed");
          self->rpc_.janitor.Remove(self->input_file_);
          return self->Respond(google::protobuf::Empty());
        }
        if (absl::IsNotFound(status) && self->request_.allow_missing()) {
          return self->Respond(google::protobuf::Empty());
        }
        self->Respond(status);
      });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::Status DeleteCall::Delete(JobStore& store, const std::string& id) {
  const auto record = store.GetJob(id);
  if (!record.ok()) {
    return JobError(record.status(), id);
  }
  RETURN_IF_ERROR(CheckEtag(*record, request_.etag()));
  if (!IsTerminal(record->state) && !request_.force()) {
    const std::string state = v1::JobState_Name(WireState(record->state));
    return MakeError(absl::StatusCode::kFailedPrecondition, reason::kStateConflict,
                     absl::StrCat("job ", JobName(id), " has not ended (",
                                  StateText(record->state),
                                  "); cancel it first, or delete it with force (--force), which "
                                  "drops its results too"),
                     {{"job", JobName(id)}, {"state", state}});
  }
  input_file_ = record->input_file;
  return store.DeleteJob(id);
}

}  // namespace nightshift
