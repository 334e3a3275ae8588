#include "server/http/metrics_page.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "server/rpc/job_view.h"

namespace nightshift {
namespace {

constexpr double kSecondsPerMicro = 1e-6;

double Number(int64_t value) {
  return static_cast<double>(value);
}

void SetIdentity(const DaemonStatus& status, Metrics& metrics) {
  metrics.Set("build_info", "The daemon's version", 1, {{"version", status.info.version()}});
  metrics.Set("start_timestamp_seconds", "When the daemon was started",
              Number(status.info.start_time().seconds()));
  for (const std::string& backend : {std::string("io_uring"), std::string("threads")}) {
    const auto& features = status.info.features();
    const bool in_use = std::find(features.begin(), features.end(), backend) != features.end();
    metrics.Set("io_backend_info", "How weights are read from disk: 1 for the one in use", in_use,
                {{"backend", backend}});
  }
}

void SetReadiness(const DaemonStatus& status, Metrics& metrics) {
  for (const ReadinessCheck& check : status.checks) {
    metrics.Set("ready", "Whether a part can do what it is there for; /readyz says why not",
                check.status.ok(), {{"check", check.name}});
  }
  metrics.Set("draining", "Whether no job is accepted and nothing runs", status.drained);
}

void SetTls(const TlsState& tls, Metrics& metrics) {
  metrics.Set("tls_cert_expiry_timestamp_seconds",
              "When the certificate that is served expires, or the first that signed it",
              kSecondsPerMicro * Number(tls.expire_time_us));
  metrics.Set("tls_pair_refused",
              "Whether certificate and key on disk are not served, because they are wrong",
              !tls.problem.empty());
}

void SetQueue(const DaemonStatus& status, Metrics& metrics) {
  const std::map<int32_t, const char*> classes = {
      {v1::PRIORITY_LOW, "low"}, {v1::PRIORITY_NORMAL, "normal"}, {v1::PRIORITY_HIGH, "high"}};
  for (const auto& [priority, name] : classes) {
    const auto waiting = status.queue.waiting.find(priority);
    metrics.Set("requests_waiting", "Requests of open jobs that no engine holds, by priority",
                waiting == status.queue.waiting.end() ? 0 : Number(waiting->second),
                {{"class", name}});
  }
  metrics.Set("requests_runnable",
              "Requests without a result of jobs that may run now: 0 while all are paused, held or "
              "not yet due",
              Number(status.runner.runnable_requests));
  for (const JobState state : {JobState::kQueued, JobState::kValidating, JobState::kRunning,
                               JobState::kPaused, JobState::kCancelling, JobState::kSucceeded,
                               JobState::kFailed, JobState::kCancelled, JobState::kExpired}) {
    const auto jobs = status.num_jobs.find(state);
    metrics.Set("jobs", "Jobs that are kept, by state",
                jobs == status.num_jobs.end() ? 0 : Number(jobs->second),
                {{"state", StateText(state)}});
  }
  metrics.Set("job_oldest_waiting_seconds", "Age of the oldest job that has not begun; 0: none",
              kSecondsPerMicro * Number(status.queue.oldest_waiting_us));
}

void SetEngine(const DaemonStatus& status, Metrics& metrics) {
  const RunnerStatus& runner = status.runner;
  metrics.Set("model_loaded", "Whether a model is loaded", !runner.loaded_model.empty());
  metrics.Set("requests_running", "Requests that the engine holds: the size of the block",
              Number(runner.held_requests));
  metrics.Set("block_max_requests", "Most requests that the engine can hold; 0: no model is loaded",
              Number(runner.max_block_requests));
  metrics.Set("kv_cache_used_ratio", "Of the memory for keys and values, in the last sweep",
              runner.kv_used_ratio);
  metrics.Set("engine_memory_bytes", "Memory that the engine has taken of its budget",
              runner.loaded_model.empty() ? 0 : Number(runner.engine_memory_bytes));
  metrics.Set("engine_memory_budget_bytes", "Most memory that the engine may take",
              Number(status.info.memory_budget_bytes()));
  metrics.Set("plan_last_time_ratio",
              "Predicted by observed time of the sweeps of the last job that ended; 0: none",
              runner.plan_counts.last_time_ratio);
  metrics.Set("plan_median_time_ratio", "The median of that over the last 33 jobs; 0: none",
              runner.plan_counts.median_time_ratio);
  std::map<std::string, int64_t> models = {{"ready", 0}, {"away", 0}, {"unusable", 0}};
  for (const CatalogModel& model : status.models) {
    ++models[model.status.ok() ? "ready" : model.is_away() ? "away" : "unusable"];
  }
  for (const auto& [state, count] : models) {
    metrics.Set("models", "Packs by whether they can be served", Number(count), {{"state", state}});
  }
}

void SetDisk(const DiskStatus& disk, Metrics& metrics) {
  metrics.Set("store_wal_bytes", "Of the database's log", Number(disk.log_bytes));
  metrics.Set("store_database_bytes", "Of the database", Number(disk.database_bytes));
  metrics.Set("store_free_bytes", "Free on the disk of the state directory",
              Number(disk.free_bytes));
  metrics.Set("store_reserve_bytes", "Free disk below which no job is accepted",
              Number(disk.reserve_bytes));
  metrics.Set("store_disk_full", "Whether the disk is full: nothing runs until there is room",
              disk.is_full);
}

}  // namespace

std::string MetricsPage(const DaemonStatus& status, Metrics& metrics) {
  SetIdentity(status, metrics);
  SetReadiness(status, metrics);
  if (status.jobs_status.ok()) {
    SetQueue(status, metrics);
  }
  SetEngine(status, metrics);
  SetDisk(status.disk, metrics);
  if (status.tls.has_value()) {
    SetTls(*status.tls, metrics);
  }
  return metrics.Text();
}

}  // namespace nightshift
