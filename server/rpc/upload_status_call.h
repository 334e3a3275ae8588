// GetUploadStatus: how much of an input the daemon has.
#pragma once

#include <string>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class UploadStatusCall : public UnaryCall<v1::UploadStatus> {
 public:
  UploadStatusCall(grpc::CallbackServerContext* context, std::string request_id,
                   v1::UploadStatus* response, RpcContext& rpc)
      : UnaryCall(context, response), request_id_(std::move(request_id)), rpc_(rpc) {}
  void Start();

 private:
  absl::StatusOr<v1::UploadStatus> Read(JobStore& store) const;

  const std::string request_id_;
  RpcContext& rpc_;
};

}  // namespace nightshift
