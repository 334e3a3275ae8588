// GetJob and ListJobs: one read of the store each.
#pragma once

#include <string>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class GetJobCall : public UnaryCall<v1::Job> {
 public:
  GetJobCall(grpc::CallbackServerContext* context, v1::GetJobRequest request, v1::Job* response,
             RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}
  void Start();

 private:
  absl::StatusOr<v1::Job> Read(JobStore& store, const std::string& id);

  const v1::GetJobRequest request_;
  RpcContext& rpc_;
};

class ListJobsCall : public UnaryCall<v1::ListJobsResponse> {
 public:
  ListJobsCall(grpc::CallbackServerContext* context, v1::ListJobsRequest request,
               v1::ListJobsResponse* response, RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}
  void Start();

 private:
  absl::Status Check() const;
  JobFilter Filter() const;
  bool HasLabel(const v1::Job& job) const;
  absl::StatusOr<v1::ListJobsResponse> Read(JobStore& store);

  const v1::ListJobsRequest request_;
  RpcContext& rpc_;
};

}  // namespace nightshift
