// GetPolicy and ExplainPolicy: the plan that runs now, and why it; on a task thread.
#pragma once

#include <string>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class GetPolicyCall : public UnaryCall<v1::Policy> {
 public:
  GetPolicyCall(grpc::CallbackServerContext* context, v1::GetPolicyRequest request,
                v1::Policy* response, RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}
  void Start();

 private:
  absl::StatusOr<v1::Policy> Get();

  const v1::GetPolicyRequest request_;
  RpcContext& rpc_;
};

class ExplainPolicyCall : public UnaryCall<v1::ExplainPolicyResponse> {
 public:
  ExplainPolicyCall(grpc::CallbackServerContext* context, v1::ExplainPolicyRequest request,
                    v1::ExplainPolicyResponse* response, RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}
  void Start();

 private:
  absl::StatusOr<v1::ExplainPolicyResponse> Explain();

  const v1::ExplainPolicyRequest request_;
  RpcContext& rpc_;
};

}  // namespace nightshift
