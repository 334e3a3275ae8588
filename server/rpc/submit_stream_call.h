// SubmitJobStream: a job whose input comes in chunks.
#pragma once

#include <memory>
#include <optional>

#include "server/rpc/acceptance.h"
#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"
#include "server/rpc/upload.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Reads one message at a time; each is worked on by a task before the next is read, so a call holds
// one chunk of memory.
class SubmitStreamCall : public Call<grpc::ServerReadReactor<v1::SubmitJobStreamRequest>> {
 public:
  SubmitStreamCall(grpc::CallbackServerContext* context, v1::Job* response, Acceptance& acceptance,
                   RpcContext& rpc);
  ~SubmitStreamCall() override;

  void Start();

 private:
  void OnReadDone(bool ok) override;
  absl::Status TakePlaces();
  void ReadNext();
  // Work on message_; on a task thread.
  void Take();
  absl::Status TakePart();
  absl::Status TakeHeader(const v1::SubmitJobStreamRequest::Header& header);
  absl::Status TakeChunk(const v1::SubmitJobStreamRequest::Chunk& chunk);
  void TakeFinish(const v1::SubmitJobStreamRequest::Finish& finish);
  void AcceptUpload();
  void EndIncomplete();
  void Respond(absl::StatusOr<v1::Job> answer);
  std::shared_ptr<SubmitStreamCall> Self() {
    return std::static_pointer_cast<SubmitStreamCall>(shared_from_this());
  }

  v1::Job* const response_;
  Acceptance& acceptance_;
  RpcContext& rpc_;
  TenantLimits::Place upload_place_;
  TenantLimits::Place stream_place_;
  v1::SubmitJobStreamRequest message_;
  std::optional<Submission> submission_;  // after the header
  std::string upload_key_;                // its UploadKey
  std::unique_ptr<Upload> upload_;        // while it is ours; kept when the call ends before it
};

}  // namespace nightshift
