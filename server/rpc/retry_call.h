// RetryFailed: a new job of the rows of an old one that have no completion but could have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/acceptance.h"
#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class RetryCall : public UnaryCall<v1::Job> {
 public:
  RetryCall(grpc::CallbackServerContext* context, v1::RetryFailedRequest request, v1::Job* response,
            Acceptance& acceptance, RpcContext& rpc)
      : UnaryCall(context, response),
        request_(std::move(request)),
        acceptance_(acceptance),
        rpc_(rpc) {}
  void Start();

 private:
  // On a scan thread: reads every result and copies rows. Memory: a bit for each row.
  absl::StatusOr<v1::Job> Run();
  absl::StatusOr<std::vector<bool>> FindRows(const JobRecord& old) const;
  absl::Status CopyRows(const JobRecord& old, const std::vector<bool>& wanted,
                        Upload& target) const;

  const v1::RetryFailedRequest request_;
  Acceptance& acceptance_;
  RpcContext& rpc_;
};

}  // namespace nightshift
