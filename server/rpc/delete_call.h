// DeleteJob: the record first, then its input file, which the janitor removes with the rest.
#pragma once

#include <string>
#include <utility>

#include <google/protobuf/empty.pb.h>

#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class DeleteCall : public UnaryCall<google::protobuf::Empty> {
 public:
  DeleteCall(grpc::CallbackServerContext* context, v1::DeleteJobRequest request,
             google::protobuf::Empty* response, RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}
  void Start();

 private:
  // Inside the store's transaction.
  absl::Status Delete(JobStore& store, const std::string& id);

  const v1::DeleteJobRequest request_;
  RpcContext& rpc_;
  std::string input_file_;  // of the store's thread
};

}  // namespace nightshift
