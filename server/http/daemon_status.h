// DaemonStatus: what the daemon is doing at a moment, as metrics and the status page tell it. Plain
// data; of jobs what callers may list, nothing of a prompt or an output.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/rpc/readiness.h"
#include "server/rpc/rpc_context.h"
#include "server/scheduling/model_catalog.h"
#include "server/scheduling/runner.h"
#include "server/security/tls_rotation.h"
#include "server/store/job_store.h"

#include "nightshift/v1/jobs.pb.h"
#include "nightshift/v1/server.pb.h"

namespace nightshift {

struct QueueStatus {
  std::map<int32_t, int64_t> waiting;  // requests that no engine holds, by v1::Priority
  int64_t oldest_waiting_us = 0;       // age of the oldest job that has not begun; 0: none
};

struct DiskStatus {
  int64_t total_bytes = 0;  // of the disk of the state directory
  int64_t free_bytes = 0;
  int64_t reserve_bytes = 0;  // of those, kept for jobs that were accepted
  bool is_full = false;       // nothing runs and nothing is accepted until there is room
  int64_t database_bytes = 0;
  int64_t log_bytes = 0;
};

struct DaemonStatus {
  v1::ServerInfo info;  // what does not change while it runs
  int64_t now_us = 0;   // wall clock
  bool drained = false;  // SetDrain holds
  std::vector<ReadinessCheck> checks;
  RunnerStatus runner;
  std::vector<CatalogModel> models;
  DiskStatus disk;
  std::optional<TlsState> tls;  // nothing: no TLS
  QueueStatus queue;
  std::map<JobState, int64_t> num_jobs;
  std::vector<v1::Job> open_jobs;  // that have not ended, in the order they should run
  absl::Status jobs_status;        // why the three above are not known
};

// Reads the store: for threads that may wait. `info`: what does not change; `database`: its path.
DaemonStatus ReadDaemonStatus(const RpcContext& rpc, const v1::ServerInfo& info,
                              const std::string& database);

}  // namespace nightshift
