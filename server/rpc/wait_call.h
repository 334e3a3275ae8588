// WaitJob: answers when the job has come far enough, or when the time is up. Holds no thread.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include <grpcpp/alarm.h>

#include "server/rpc/call.h"
#include "server/rpc/open_calls.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

class WaitCall : public UnaryCall<v1::Job>, public OpenCalls::Waiting {
 public:
  WaitCall(grpc::CallbackServerContext* context, v1::WaitJobRequest request, v1::Job* response,
           RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}

  void Start();
  // Looks at the job again.
  void Wake() override;

 private:
  void Ended() override;
  void SetAlarm();
  // On a reader thread.
  void Look(JobStore& store);
  bool Reached(const v1::Job& job) const;
  std::shared_ptr<WaitCall> Self() {
    return std::static_pointer_cast<WaitCall>(shared_from_this());
  }

  const v1::WaitJobRequest request_;
  RpcContext& rpc_;
  TenantLimits::Place place_;
  std::string job_id_;
  grpc::Alarm alarm_;
  int64_t subscription_ = 0;
  int64_t open_call_ = 0;
  std::atomic<bool> timed_out_{false};
  // Looks asked for and not begun: 0, or 1 while a read is queued; more are folded into it.
  std::atomic<int> pending_looks_{0};
};

}  // namespace nightshift
