#include "server/rpc/submit_stream_call.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/failpoint.h"
#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/disk_reserve.h"

namespace nightshift {
namespace {

absl::Status WrongOrder(absl::string_view part, absl::string_view problem) {
  return MakeFieldError(reason::kFieldInvalid, {{std::string(part), std::string(problem)}});
}

// Bytes of an upload between syncs: what a crash may cost its sender.
constexpr int64_t kSyncBytes = 32 << 20;

absl::Status Incomplete(int64_t durable_bytes) {
  return MakeError(absl::StatusCode::kAborted, reason::kUploadIncomplete,
                   absl::StrCat("the upload ended without finish; ", durable_bytes,
                                " bytes of it are kept, go on with resume_offset"),
                   {{"committedSize", absl::StrCat(durable_bytes)}});
}

// What the same bytes may yet become a job after.
bool IsPassing(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsResourceExhausted(status) ||
         absl::IsAborted(status) || absl::IsNotFound(status) ||
         absl::IsFailedPrecondition(status) || absl::IsInternal(status);
}

}  // namespace

SubmitStreamCall::SubmitStreamCall(grpc::CallbackServerContext* context, v1::Job* response,
                                   Acceptance& acceptance, RpcContext& rpc)
    : Call(context), response_(response), acceptance_(acceptance), rpc_(rpc) {}

SubmitStreamCall::~SubmitStreamCall() {
  if (upload_ == nullptr) {
    return;
  }
  // Syncs, so on a task thread; at the end of the daemon what is not synced is sent again.
  const auto keep = [&uploads = rpc_.uploads, key = upload_key_,
                     upload = std::make_shared<std::unique_ptr<Upload>>(std::move(upload_))] {
    uploads.Return(key, std::move(*upload));
  };
  if (!rpc_.tasks.Push(keep).ok()) {
    keep();
  }
}

void SubmitStreamCall::Start() {
  if (const absl::Status opened = TakePlaces(); !opened.ok()) {
    FinishOnce(opened);
    return;
  }
  ReadNext();
}

absl::Status SubmitStreamCall::TakePlaces() {
  ASSIGN_OR_RETURN(upload_place_, rpc_.tenants.OpenUpload(caller().tenant));
  ASSIGN_OR_RETURN(stream_place_, rpc_.tenants.OpenStream(caller().tenant));
  return absl::OkStatus();
}

void SubmitStreamCall::ReadNext() {
  Operate([this] { StartRead(&message_); });
}

void SubmitStreamCall::OnReadDone(bool ok) {
  if (!ok) {
    if (const absl::Status pushed = rpc_.tasks.Push([self = Self()] { self->EndIncomplete(); });
        !pushed.ok()) {
      FinishOnce(pushed);
    }
    return;
  }
  if (const absl::Status pushed = rpc_.tasks.Push([self = Self()] { self->Take(); });
      !pushed.ok()) {
    FinishOnce(pushed);
  }
}

void SubmitStreamCall::EndIncomplete() {
  FinishOnce(
      Incomplete(upload_ == nullptr ? 0 : rpc_.uploads.Return(upload_key_, std::move(upload_))));
}

void SubmitStreamCall::Take() {
  if (message_.has_finish() && submission_) {
    TakeFinish(message_.finish());
    return;
  }
  const absl::Status taken = TakePart();
  if (!taken.ok()) {
    // Whoever hears of it may go on with the upload at once.
    if (upload_ != nullptr) {
      rpc_.uploads.Return(upload_key_, std::move(upload_));
    }
    FinishOnce(taken);
    return;
  }
  ReadNext();
}

absl::Status SubmitStreamCall::TakePart() {
  switch (message_.part_case()) {
    case v1::SubmitJobStreamRequest::kHeader:
      return TakeHeader(message_.header());
    case v1::SubmitJobStreamRequest::kChunk:
      return TakeChunk(message_.chunk());
    case v1::SubmitJobStreamRequest::kFinish:
      return WrongOrder("finish", "came before the header");
    case v1::SubmitJobStreamRequest::PART_NOT_SET:
      break;
  }
  return WrongOrder("part", "is missing");
}

absl::Status SubmitStreamCall::TakeHeader(const v1::SubmitJobStreamRequest::Header& header) {
  if (submission_) {
    return WrongOrder("header", "came twice");
  }
  if (header.request_id().empty()) {
    return MakeFieldError(reason::kFieldInvalid, {{"header.request_id", "is required: a UUID"}});
  }
  if (header.format() != v1::INPUT_FORMAT_JSONL && header.format() != v1::INPUT_FORMAT_PROTO) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"header.format", absl::StrCat("must be JSONL or PROTO, is ",
                                                          static_cast<int>(header.format()))}});
  }
  if (header.resume_offset() < 0) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"header.resume_offset", absl::StrCat("is ", header.resume_offset(),
                                                                 ", must be 0 or more")}});
  }
  Submission submission = {.tenant = caller().tenant,
                           .job_id = header.job_id(),
                           .request_id = header.request_id(),
                           .spec = header.spec(),
                           .format = header.format(),
                           .validate_only = header.validate_only()};
  RETURN_IF_ERROR(acceptance_.Begin(submission));
  // An unknown model is told before gigabytes are sent.
  RETURN_IF_ERROR(acceptance_.CheckModel(submission.spec.model()));
  upload_key_ = UploadKey(caller().tenant, submission.request_id);
  ASSIGN_OR_RETURN(upload_, rpc_.uploads.Begin(upload_key_, header.resume_offset()));
  submission_ = std::move(submission);
  return absl::OkStatus();
}

absl::Status SubmitStreamCall::TakeChunk(const v1::SubmitJobStreamRequest::Chunk& chunk) {
  if (!submission_) {
    return WrongOrder("chunk", "came before the header");
  }
  const auto size = static_cast<int64_t>(chunk.data().size());
  if (size > rpc_.limits.max_chunk_bytes) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"chunk.data", absl::StrCat("has ", size, " bytes, at most ",
                                                       rpc_.limits.max_chunk_bytes)}});
  }
  if (upload_->committed_bytes() + size > rpc_.limits.max_input_bytes) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"chunk.data", absl::StrCat("the input has more than ",
                                                       rpc_.limits.max_input_bytes, " bytes")}});
  }
  RETURN_IF_ERROR(CheckDiskReserve(rpc_, size));
  RETURN_IF_ERROR(upload_->Append(chunk.offset(), chunk.data(), chunk.crc32c()));
  if (upload_->committed_bytes() - upload_->durable_bytes() >= kSyncBytes) {
    RETURN_IF_ERROR(upload_->Sync());
    rpc_.uploads.Advance(upload_key_, upload_->durable_bytes());
  }
  return absl::OkStatus();
}

void SubmitStreamCall::TakeFinish(const v1::SubmitJobStreamRequest::Finish& finish) {
  Failpoint("finish_received");
  if (const absl::Status finished = upload_->Finish(finish.total_bytes(), finish.sha256());
      !finished.ok()) {
    rpc_.uploads.Forget(upload_key_, std::move(upload_));
    FinishOnce(finished);
    return;
  }
  if (const absl::Status pushed = rpc_.scans.Push([self = Self()] { self->AcceptUpload(); });
      !pushed.ok()) {
    FinishOnce(pushed);
  }
}

void SubmitStreamCall::AcceptUpload() {
  absl::StatusOr<v1::Job> job = acceptance_.Accept(*submission_, *upload_);
  // A job's file has moved; a refused one's is of no use, unless the reason may pass.
  if (job.ok() || !IsPassing(job.status())) {
    rpc_.uploads.Forget(upload_key_, std::move(upload_));
  } else {
    rpc_.uploads.Return(upload_key_, std::move(upload_));
  }
  Respond(std::move(job));
  Failpoint("reply_given");
}

void SubmitStreamCall::Respond(absl::StatusOr<v1::Job> answer) {
  FinishAfter(answer.status(), [&] {
    if (answer.ok()) {
      *response_ = *std::move(answer);
    }
  });
}

}  // namespace nightshift
