#include "client/upload.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/await.h"
#include "client/rpc_error.h"
#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// The fastest of 4 KiB to 4 MB over loopback (4 KiB 131, 64 KiB 218, 256 KiB 286, 1 MiB 241 MB/s).
constexpr int64_t kChunkBytes = 256 << 10;

// An upload may take this long beside its share of the bytes: the server checks every line and
// syncs before it answers.
constexpr absl::Duration kUploadSlack = absl::Minutes(10);
constexpr int64_t kSlowestBytesPerSecond = 1 << 20;

constexpr char kAttempted[] = "submit";

absl::Time UploadDeadline(const InputFile& input) {
  return absl::Now() + kUploadSlack + absl::Seconds(input.size_bytes() / kSlowestBytesPerSecond);
}

v1::SubmitJobStreamRequest HeaderOf(const SubmitOptions& submission, int64_t offset) {
  v1::SubmitJobStreamRequest request;
  v1::SubmitJobStreamRequest::Header& header = *request.mutable_header();
  header.set_job_id(submission.job_id);
  header.set_request_id(submission.request_id);
  *header.mutable_spec() = submission.spec;
  header.set_format(v1::INPUT_FORMAT_JSONL);
  header.set_resume_offset(offset);
  header.set_validate_only(submission.validate_only);
  return request;
}

v1::SubmitJobStreamRequest ChunkOf(int64_t offset, std::string bytes) {
  v1::SubmitJobStreamRequest request;
  v1::SubmitJobStreamRequest::Chunk& chunk = *request.mutable_chunk();
  chunk.set_offset(offset);
  chunk.set_crc32c(Crc32c(std::as_bytes(std::span(bytes))));
  chunk.set_data(std::move(bytes));
  return request;
}

v1::SubmitJobStreamRequest FinishOf(const InputFile& input) {
  v1::SubmitJobStreamRequest request;
  request.mutable_finish()->set_total_bytes(input.size_bytes());
  request.mutable_finish()->set_sha256(input.sha256());
  return request;
}

// One client stream whose operations are awaited one after the other.
class UploadStream {
 public:
  UploadStream(v1::JobService::Stub& stub, const InputFile& input,
               const std::function<bool()>& keep_waiting)
      : keep_waiting_(keep_waiting) {
    context_.set_deadline(absl::ToChronoTime(UploadDeadline(input)));
    writer_ = stub.PrepareAsyncSubmitJobStream(&context_, &job_, &queue_);
    writer_->StartCall(nullptr);
    last_ = Wait();
  }

  // False when the server has answered already or the call is over.
  bool Write(const v1::SubmitJobStreamRequest& request) {
    if (last_ != Awaited::kDone) {
      return false;
    }
    writer_->Write(request, nullptr);
    last_ = Wait();
    return last_ == Awaited::kDone;
  }

  // Ends the call without a finish, so that the server forgets the upload.
  absl::Status Abandon(absl::Status reason) {
    context_.TryCancel();
    last_ = Awaited::kBroken;
    (void)Finish();
    return reason;
  }

  absl::StatusOr<v1::Job> Finish() {
    if (last_ == Awaited::kDone) {
      writer_->WritesDone(nullptr);
      last_ = Wait();
    }
    grpc::Status status;
    writer_->Finish(&status, nullptr);
    const bool was_stopped = last_ == Awaited::kStopped;
    if (Wait() == Awaited::kStopped || was_stopped) {
      return absl::CancelledError(absl::StrCat(kAttempted, ": interrupted"));
    }
    if (!status.ok()) {
      return FromRpcStatus(kAttempted, status);
    }
    return job_;
  }

 private:
  Awaited Wait() { return Await(queue_, context_, absl::InfiniteFuture(), keep_waiting_); }

  const std::function<bool()>& keep_waiting_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  v1::Job job_;
  std::unique_ptr<grpc::ClientAsyncWriter<v1::SubmitJobStreamRequest>> writer_;
  Awaited last_ = Awaited::kDone;
};

}  // namespace

absl::StatusOr<v1::Job> UploadInput(v1::JobService::Stub& stub, const SubmitOptions& submission,
                                    const InputFile& input, int64_t offset,
                                    const std::function<bool()>& keep_waiting) {
  UploadStream stream(stub, input, keep_waiting);
  bool open = stream.Write(HeaderOf(submission, offset));
  ContentHash sum;
  for (int64_t position = 0; open && position < input.size_bytes();) {
    // What the daemon has is read again too: the file may have changed since.
    const int64_t end = position < offset ? offset : input.size_bytes();
    absl::StatusOr<std::string> bytes =
        input.ReadAt(position, std::min(kChunkBytes, end - position));
    if (!bytes.ok()) {
      return stream.Abandon(bytes.status());
    }
    if (bytes->empty()) {
      break;
    }
    sum.Update(*bytes);
    const int64_t length = static_cast<int64_t>(bytes->size());
    open = position < offset || stream.Write(ChunkOf(position, *std::move(bytes)));
    position += length;
  }
  if (open && sum.Finish() != input.sha256()) {
    return stream.Abandon(absl::InvalidArgumentError(
        absl::StrCat(kAttempted, ": ", input.name(), " changed while it was read")));
  }
  if (open) {
    stream.Write(FinishOf(input));
  }
  return stream.Finish();
}

}  // namespace nightshift
