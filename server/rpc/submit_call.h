// SubmitJob: a job with inline requests.
#pragma once

#include "server/rpc/acceptance.h"
#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class SubmitCall : public UnaryCall<v1::Job> {
 public:
  SubmitCall(grpc::CallbackServerContext* context, const v1::SubmitJobRequest& request,
             v1::Job* response, Acceptance& acceptance, RpcContext& rpc)
      : UnaryCall(context, response), request_(request), acceptance_(acceptance), rpc_(rpc) {}

  void Start();

 private:
  absl::StatusOr<v1::Job> Run();
  // The request's memory is gRPC's until the call ends, so it ends only when the task has run.
  void OnCancel() override {}

  const v1::SubmitJobRequest& request_;
  Acceptance& acceptance_;
  RpcContext& rpc_;
};

}  // namespace nightshift
