// CancelJob: one write of the store.
#pragma once

#include <string>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class CancelCall : public UnaryCall<v1::Job> {
 public:
  CancelCall(grpc::CallbackServerContext* context, v1::CancelJobRequest request, v1::Job* response,
             RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}
  void Start();

 private:
  // Inside the store's transaction.
  absl::Status Cancel(JobStore& store, const std::string& id) const;
  void ReadBack(const std::string& id);

  const v1::CancelJobRequest request_;
  RpcContext& rpc_;
};

}  // namespace nightshift
