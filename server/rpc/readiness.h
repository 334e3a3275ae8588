// Readiness: whether the daemon can do what it is there for, part by part, with the reason where it
// cannot. What the health service, the HTTP server and the status page say comes from here.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/rpc/rpc_context.h"

namespace nightshift {

struct ReadinessCheck {
  std::string name;     // "store", "disk", "drain" or "engine"
  absl::Status status;  // why not, and what to do
};

// store: what is accepted becomes durable. disk: there is room for new jobs. drain: new jobs are
// wanted. engine: queued jobs can run. Cheap: reads no more than the disk's free space.
std::vector<ReadinessCheck> CheckReadiness(const RpcContext& rpc);

// Whether jobs are accepted: every check but the engine's, for which accepted jobs wait.
bool AcceptsJobs(const std::vector<ReadinessCheck>& checks);
// Whether accepted jobs can run.
bool CanRun(const std::vector<ReadinessCheck>& checks);
// Whether every check passes.
bool IsReady(const std::vector<ReadinessCheck>& checks);

}  // namespace nightshift
