#include "server/http/daemon_status.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/rpc/job_view.h"
#include "server/store/disk_room.h"

namespace nightshift {
namespace {

int64_t FileBytes(const std::string& path) {
  std::error_code error;
  const auto bytes = std::filesystem::file_size(path, error);
  return error ? 0 : static_cast<int64_t>(bytes);
}

DiskStatus ReadDisk(const RpcContext& rpc, const std::string& database) {
  DiskStatus disk;
  std::error_code error;
  const std::filesystem::space_info space = std::filesystem::space(rpc.uploads_directory, error);
  if (!error) {
    disk.total_bytes = static_cast<int64_t>(space.capacity);
    disk.free_bytes = static_cast<int64_t>(space.available);
  }
  if (const auto room = ReadDiskRoom(rpc.uploads_directory, rpc.limits.disk_reserve_bytes)) {
    disk.reserve_bytes = room->reserve_bytes;
  }
  disk.is_full = rpc.disk.full();
  disk.database_bytes = FileBytes(database);
  disk.log_bytes = FileBytes(database + "-wal");
  return disk;
}

QueueStatus QueueOf(const std::vector<JobRecord>& open_jobs, int64_t now_us) {
  QueueStatus queue;
  for (const JobRecord& job : open_jobs) {
    queue.waiting[job.priority] += job.counts.pending;
    if (job.start_time_us == 0 && job.state != JobState::kCancelling) {
      queue.oldest_waiting_us = std::max(queue.oldest_waiting_us, now_us - job.create_time_us);
    }
  }
  return queue;
}

absl::Status ReadJobs(const RpcContext& rpc, DaemonStatus& status) {
  JobStore& store = rpc.store.store();
  ASSIGN_OR_RETURN(status.num_jobs, store.CountJobs());
  ASSIGN_OR_RETURN(const std::vector<JobRecord> open_jobs, store.ActiveJobs());
  status.queue = QueueOf(open_jobs, status.now_us);
  const ViewMoment moment = MomentOf(rpc);
  for (const JobRecord& record : open_jobs) {
    // One that cannot be read is told of where its owner asks for it.
    if (absl::StatusOr<v1::Job> job = MakeJob(record, moment); job.ok()) {
      status.open_jobs.push_back(*std::move(job));
    }
  }
  return absl::OkStatus();
}

}  // namespace

DaemonStatus ReadDaemonStatus(const RpcContext& rpc, const v1::ServerInfo& info,
                              const std::string& database) {
  DaemonStatus status;
  status.info = info;
  status.now_us = rpc.clock.WallMicros();
  status.drained = rpc.calls.drained();
  status.checks = CheckReadiness(rpc);
  status.runner = rpc.runner_status();
  status.models = rpc.catalog.List();
  status.disk = ReadDisk(rpc, database);
  if (rpc.tls != nullptr) {
    status.tls = rpc.tls->state();
  }
  status.jobs_status = ReadJobs(rpc, status);
  return status;
}

}  // namespace nightshift
