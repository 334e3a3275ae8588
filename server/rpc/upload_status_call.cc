#include "server/rpc/upload_status_call.h"

#include <memory>
#include <optional>

#include <sys/stat.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/security/identifiers.h"

namespace nightshift {

void UploadStatusCall::Start() {
  if (!IsUuid(request_id_)) {
    return Respond(MakeFieldError(reason::kFieldInvalid, {{"request_id", "must be a UUID"}}));
  }
  const auto self = std::static_pointer_cast<UploadStatusCall>(shared_from_this());
  const absl::Status queued =
      rpc_.store.Read([self](JobStore& store) { self->Respond(self->Read(store)); });
  if (!queued.ok()) {
    Respond(queued);
  }
}

absl::StatusOr<v1::UploadStatus> UploadStatusCall::Read(JobStore& store) const {
  v1::UploadStatus status;
  const absl::StatusOr<JobRecord> job = store.FindSubmission(caller().tenant, request_id_);
  if (job.ok() && job->state != JobState::kReceiving) {
    struct stat input = {};
    const size_t slash = job->input_file.rfind('/');
    const std::string path =
        absl::StrCat(rpc_.jobs_directory, "/", job->input_file.substr(slash + 1));
    if (!job->input_file.empty() && ::stat(path.c_str(), &input) == 0) {
      status.set_committed_bytes(input.st_size);
    }
    status.set_complete(true);
    return status;
  }
  if (!job.ok() && !absl::IsNotFound(job.status())) {
    return job.status();
  }
  const std::optional<UploadPosition> upload =
      rpc_.uploads.Find(UploadKey(caller().tenant, request_id_));
  if (!upload.has_value() && !job.ok()) {
    return MakeError(absl::StatusCode::kNotFound, reason::kUploadNotFound,
                     absl::StrCat("no upload with request_id ", request_id_,
                                  " is kept; begin at offset 0"),
                     {{"request_id", request_id_}});
  }
  if (upload.has_value()) {
    status.set_committed_bytes(upload->durable_bytes);
    status.mutable_expire_time()->set_seconds(upload->expire_time_us / 1'000'000);
  }
  return status;
}

}  // namespace nightshift
