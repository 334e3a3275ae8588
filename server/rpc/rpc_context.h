// RpcContext: what the services work with, made by the Server, which outlives them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/schedule/timeline.h"
#include "kernels/base/clock.h"
#include "server/input/parse_limits.h"
#include "server/metrics/metrics.h"
#include "server/rpc/job_view.h"
#include "server/rpc/kept_uploads.h"
#include "server/rpc/open_calls.h"
#include "server/rpc/page_token.h"
#include "server/rpc/task_pool.h"
#include "server/rpc/tenant_limits.h"
#include "server/scheduling/model_catalog.h"
#include "server/scheduling/runner.h"
#include "server/security/access_control.h"
#include "server/security/tls_rotation.h"
#include "server/store/disk_guard.h"
#include "server/store/janitor.h"
#include "server/store/store_actor.h"

#include "nightshift/v1/jobs.pb.h"
#include "nightshift/v1/server.pb.h"

namespace nightshift {

struct RpcLimits {
  ParseLimits parse;
  int64_t max_message_bytes = 4 << 20;
  int64_t max_inline_bytes = 3'670'016;  // all requests of a SubmitJob: 7/8 of a message
  int64_t max_chunk_bytes = 1 << 20;
  int64_t max_input_bytes = int64_t{20} << 30;
  int64_t max_rows = 10'000'000;
  int64_t max_uploads = 16;  // of a tenant at one time
  int64_t max_wait_s = 60;   // of a WaitJob
  // Free disk below which no job is accepted; -1: the larger of 5 % and 2 GiB.
  int64_t disk_reserve_bytes = -1;
  int64_t heartbeat_interval_us = 15'000'000;
  int64_t stalled_reader_us = 300'000'000;
};

struct RpcContext {
  const AccessControl& access;
  TenantLimits& tenants;
  StoreActor& store;
  ModelCatalog& catalog;
  const Clock& clock;
  TaskPool& tasks;  // short: a chunk, a small job
  TaskPool& scans;  // long: the pass over an uploaded input
  OpenCalls& calls;
  KeptUploads& uploads;
  Janitor& janitor;
  const DiskGuard& disk;
  Metrics& metrics;
  const TlsRotation* tls;  // null: no TLS
  PageTokens tokens;
  RpcLimits limits;
  std::string jobs_directory;     // folder of published inputs
  std::string uploads_directory;  // folder of inputs that are being received
  std::string jobs_prefix;        // of jobs_directory, relative to the state directory
  v1::ComputeTypeChoice default_compute_type = v1::COMPUTE_TYPE_CHOICE_BF16;
  v1::CompressionChoice default_kv_type = v1::COMPRESSION_CHOICE_NONE;
  double default_sparse_attention = 1.0;
  bool allow_lossy = false;
  std::function<RunnerStatus()> runner_status;
  std::function<std::vector<StepTimes>()> timeline;  // Runner::timeline
  // Runner::PlanFor. Takes a second: for task threads.
  std::function<absl::StatusOr<PolicyState>(const ModelKey&, const WorkloadProfile&,
                                            const std::vector<DType>& kv_types)>
      plan_for;
  // Runner::TextOf. Reads files: for task threads.
  std::function<absl::StatusOr<ModelTextPtr>(const CatalogModel&)> text_of;
  // Blocks: for task threads. Errors: StateDirectory::KeepDrained's; nothing has changed.
  std::function<absl::Status(bool drain)> set_drain;
  // Blocks: for task threads. See server/store/backup.h.
  std::function<absl::StatusOr<v1::BackupResponse>(const std::string& directory)> backup;
};

// What views of jobs tell now.
inline ViewMoment MomentOf(const RpcContext& rpc) {
  const RunnerStatus runner = rpc.runner_status();
  return {.now_us = rpc.clock.WallMicros(),
          .tokens_per_second = runner.tokens_per_second,
          .times_left = runner.times_left,
          .times_left_us = runner.times_left_us,
          .store = &rpc.store.store(),
          .loaded_model = runner.loaded_model,
          .model_waits = runner.model_waits,
          .drained = rpc.calls.drained()};
}

}  // namespace nightshift
