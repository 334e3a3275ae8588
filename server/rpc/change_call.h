// CancelJob, PauseJob and ResumeJob: one write of the store, then the job as it has become.
#pragma once

#include <string>
#include <utility>

#include "server/rpc/call.h"
#include "server/rpc/rpc_context.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// What is asked of the store, and what an ended job is told that it cannot be.
struct JobChange {
  absl::Status (JobStore::*apply)(const std::string& job_id);
  const char* refused;  // "has ended already ...; REFUSED"
};
inline constexpr JobChange kCancelChange = {&JobStore::RequestCancel, "what it has is kept"};
inline constexpr JobChange kPauseChange = {&JobStore::PauseJob, "there is nothing to pause"};
inline constexpr JobChange kResumeChange = {&JobStore::ResumeJob, "it does not go on"};

class ChangeCall : public UnaryCall<v1::Job> {
 public:
  ChangeCall(grpc::CallbackServerContext* context, const JobChange& change, std::string name,
             std::string etag, v1::Job* response, RpcContext& rpc)
      : UnaryCall(context, response),
        change_(change),
        name_(std::move(name)),
        etag_(std::move(etag)),
        rpc_(rpc) {}
  void Start();

 private:
  // Inside the store's transaction.
  absl::Status Change(JobStore& store, const std::string& id) const;
  void ReadBack(const std::string& id);

  const JobChange change_;
  const std::string name_;
  const std::string etag_;
  RpcContext& rpc_;
};

}  // namespace nightshift
