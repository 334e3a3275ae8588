#include "server/rpc/submit_call.h"

#include <memory>
#include <string>
#include <utility>

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

// The requests as an input file of INPUT_FORMAT_PROTO.
std::string EncodeInput(const v1::SubmitJobRequest& request) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream coded(&stream);
    coded.SetSerializationDeterministic(true);
    for (const v1::InferenceRequest& row : request.requests()) {
      coded.WriteVarint64(row.ByteSizeLong());
      row.SerializeToCodedStream(&coded);
    }
  }
  return bytes;
}

}  // namespace

void SubmitCall::Start() {
  const auto self = std::static_pointer_cast<SubmitCall>(shared_from_this());
  const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->Run()); });
  if (!pushed.ok()) {
    Respond(pushed);
  }
}

absl::StatusOr<v1::Job> SubmitCall::Run() {
  const Submission submission = {.tenant = caller().tenant,
                                 .job_id = request_.job_id(),
                                 .request_id = request_.request_id(),
                                 .spec = request_.spec(),
                                 .format = v1::INPUT_FORMAT_PROTO,
                                 .validate_only = request_.validate_only()};
  RETURN_IF_ERROR(acceptance_.Begin(submission));
  if (request_.requests().empty()) {
    return MakeFieldError(reason::kFieldInvalid, {{"requests", "is empty"}});
  }
  if (const auto size = static_cast<int64_t>(request_.ByteSizeLong());
      size > rpc_.limits.max_inline_bytes) {
    return MakeFieldError(
        reason::kFieldInvalid,
        {{"requests", absl::StrCat("the call has ", size, " bytes, at most ",
                                   rpc_.limits.max_inline_bytes, "; use SubmitJobStream")}});
  }
  ASSIGN_OR_RETURN(std::unique_ptr<Upload> upload, Upload::Create(rpc_.uploads_directory));
  RETURN_IF_ERROR(upload->Append(EncodeInput(request_)));
  upload->Finish();
  return acceptance_.Accept(submission, *upload);
}

}  // namespace nightshift
