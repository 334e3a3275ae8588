#include "server/server.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

#include "engine/io/disk_queue.h"
#include "engine/policy/hardware_file.h"
#include "engine/policy/hardware_profile.h"
#include "kernels/base/log.h"
#include "kernels/base/log_format.h"
#include "kernels/base/status_macros.h"
#include "server/device_choice.h"
#include "server/http/daemon_status.h"
#include "server/http/metrics_page.h"
#include "server/http/readiness_page.h"
#include "server/http/status_page.h"
#include "server/memory_limit.h"
#include "server/rpc/listener_probe.h"
#include "server/rpc/readiness.h"
#include "server/scheduling/job_context.h"
#include "server/security/identifiers.h"
#include "server/store/backup.h"
#include "server/store/recovery.h"
#include "server/store/sqlite_job_store.h"
#include "server/tools/calibrate.h"

namespace nightshift {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;
constexpr int64_t kMicrosPerDay = 24 * 3600 * kMicrosPerSecond;
// Chunks of uploads and small jobs; both are bounded by the disk.
constexpr int kTaskThreads = 4;
constexpr int64_t kMaxQueuedTasks = 256;
// Passes over uploaded inputs are bounded by one core each and must leave the others to the engine.
constexpr int kScanThreads = 1;
constexpr int64_t kMaxQueuedScans = 64;

RpcLimits MakeRpcLimits(const Options& options) {
  RpcLimits limits;
  limits.parse.max_line_bytes = options.max_line_bytes;
  limits.parse.max_prompt_bytes = std::min(options.max_prompt_bytes, options.max_line_bytes);
  limits.parse.max_custom_id_bytes = options.max_custom_id_bytes;
  limits.parse.max_labels = static_cast<int32_t>(options.max_labels);
  limits.parse.max_json_depth = static_cast<int32_t>(options.max_json_depth);
  limits.parse.max_choices = static_cast<int32_t>(options.max_choices);
  limits.max_message_bytes = options.max_message_bytes;
  // What a message has beside the requests.
  limits.max_inline_bytes = options.max_message_bytes / 8 * 7;
  limits.max_chunk_bytes = options.max_chunk_bytes;
  limits.max_wait_s = options.max_wait_s;
  limits.max_input_bytes = options.max_input_bytes;
  limits.max_rows = options.max_requests_per_job;
  limits.max_uploads = options.max_uploads;
  limits.disk_reserve_bytes = options.disk_reserve_bytes;
  return limits;
}

RunnerOptions MakeRunnerOptions(const Options& options, const ParseLimits& limits,
                                const std::string& state_directory) {
  RunnerOptions runner;
  runner.engine.compute_type = options.compute_type;
  runner.engine.num_threads = static_cast<int>(options.threads);
  runner.engine.memory_budget_bytes = options.memory_budget_bytes;
  runner.engine.weight_budget_bytes = options.weight_budget_bytes;
  runner.engine.tiers = options.tiers;
  runner.engine.max_sweep_tokens = options.max_sweep_tokens;
  runner.engine.max_batch_tokens = options.max_batch_tokens;
  runner.engine.prompt_chunk_tokens = options.prompt_chunk_tokens;
  runner.engine.max_block_requests = options.max_block_requests;
  runner.fixed = options.fixed;
  runner.state_directory = state_directory;
  // A quarter of the cores at low priority checks far ahead of any model that does not fit.
  runner.num_tokenizer_threads =
      std::clamp(static_cast<int>(std::thread::hardware_concurrency()) / 4, 1, 4);
  runner.kept_prompt_bytes = options.kept_prompt_bytes;
  runner.claim_window_rows = options.claim_window_rows;
  runner.disk_reserve_bytes = options.disk_reserve_bytes;
  runner.refinement_path = state_directory + "/refinement.json";
  runner.available_memory = AvailableMemoryBytes;
  runner.limits = limits;
  return runner;
}

absl::Status OfOption(absl::string_view option, const absl::Status& status) {
  return status.ok() ? status
                     : absl::Status(status.code(), absl::StrCat(option, ": ", status.message()));
}

// What to plan with: the profile that is asked for, or this machine's if there is one.
absl::Status FindHardware(const Options& options, RunnerOptions& runner) {
  if (!options.plans) {
    runner.why_no_hardware = "planning is off (--plan off): the daemon's options hold";
    return absl::OkStatus();
  }
  if (runner.engine.tiers.gpu.has_value() && options.hardware.empty()) {
    runner.why_no_hardware =
        "a GPU computes, and what nightshift calibrate measures is the CPU; name a profile of such a "
        "machine with --hardware, as t4; until then the daemon's options hold";
    return absl::OkStatus();
  }
  absl::StatusOr<HardwareProfile> profile = options.hardware.empty()
                                                ? LoadHardwareProfile(DefaultHardwarePath())
                                                : FindHardwareProfile(options.hardware);
  if (!options.hardware.empty()) {
    RETURN_IF_ERROR(OfOption(absl::StrCat("--hardware ", options.hardware), profile.status()));
  }
  if (!profile.ok()) {
    runner.why_no_hardware = absl::StrCat(profile.status().message(),
                                          ", then restart the daemon; until then its own "
                                          "options hold");
    LOG(WARNING) << "not_planning reason=\"" << profile.status().message()
                 << "\" action=\"the options of the daemon hold\"";
    return absl::OkStatus();
  }
  runner.stale_hardware =
      ProfileNote(options.hardware, *profile, options.state_directory, MemoryLimitBytes());
  if (!runner.stale_hardware.empty()) {
    LOG(WARNING) << "hardware_profile reason=\"" << runner.stale_hardware << "\"";
  }
  runner.hardware = *std::move(profile);
  return absl::OkStatus();
}

v1::ServerInfo MakeInfo(const Options& options, const RpcLimits& limits, const std::string& storage,
                        int64_t wall_us) {
  v1::ServerInfo info;
  info.set_version(NIGHTSHIFT_VERSION);
  info.add_api_versions("nightshift.v1");
  info.set_instance_id(MakeUuid(wall_us));
  info.set_storage(storage);
  info.mutable_start_time()->set_seconds(wall_us / kMicrosPerSecond);
  *info.mutable_limits() = MakeLimits(limits);
  info.set_memory_budget_bytes(options.memory_budget_bytes);
  info.set_kv_type(CompressionName(options.kv_type));
  info.set_sparse_attention(options.sparse_attention);
  info.set_allow_lossy(options.allow_lossy);
  DiskQueueOptions probe;
  probe.depth = 1;
  if (const auto disk = DiskQueue::Create(probe); disk.ok()) {
    info.add_features(DiskBackendName((*disk)->backend()));
  }
  for (const char* feature : {"input-jsonl", "input-proto", "openai-chat", "openai-completions"}) {
    info.add_features(feature);
  }
  return info;
}

// A file is no disk that may yet be mounted.
absl::Status RefuseFiles(const std::vector<std::string>& packs) {
  for (const std::string& pack : packs) {
    std::error_code error;
    if (std::filesystem::is_regular_file(pack, error)) {
      return absl::InvalidArgumentError(
          absl::StrCat("--model ", pack, " is a file, not a pack; make one of it: nightshift import ",
                       pack, " --output PACK"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPacks(const Options& options) {
  RETURN_IF_ERROR(RefuseFiles(options.models));
  std::error_code error;
  if (!options.models_directory.empty() &&
      !std::filesystem::is_directory(options.models_directory, error)) {
    return absl::NotFoundError(absl::StrCat("--models ", options.models_directory,
                                            ": no such folder; make it and import packs to it"));
  }
  for (const CatalogModel& model : ModelCatalog(options.models, options.models_directory).List()) {
    RETURN_IF_ERROR(OfOption(absl::StrCat("pack ", model.path), model.status));
  }
  return absl::OkStatus();
}

// Says at once what a job would be told hours later.
void LogUnservable(const ModelCatalog& catalog) {
  int64_t num_ready = 0;
  for (const CatalogModel& model : catalog.List()) {
    if (model.status.ok()) {
      ++num_ready;
    } else if (model.is_away()) {
      LOG(ERROR) << "model_away model=" << model.name << " path=" << model.path << " reason=\""
                 << model.status.message()
                 << "\" action=\"its jobs wait until the pack is there; new ones are refused\"";
    } else {
      LOG(ERROR) << "model_unusable model=" << model.name << " path=" << model.path
                 << " error=\"" << model.status.message() << "\"";
    }
  }
  if (num_ready == 0) {
    LOG(WARNING) << "no_model action=\"every job is refused until there is a pack: nightshift import; "
                    "--models DIR finds it without a restart\"";
  }
}

}  // namespace

absl::Status Server::Check(const Options& options) {
  RETURN_IF_ERROR(CheckPacks(options));
  RunnerOptions runner;
  runner.engine.tiers = options.tiers;
  RETURN_IF_ERROR(ChooseDevice(options.device, options.compute_type, options.sparse_attention,
                               runner.engine.tiers)
                      .status());
  RETURN_IF_ERROR(FindHardware(options, runner));
  RETURN_IF_ERROR(OfOption("--access-file", AccessControl::Create(options.access_file).status()));
  if (!options.tls.certificate.empty()) {
    RETURN_IF_ERROR(
        OfOption("--tls-cert", ReadTlsPair(options.tls, RealClock().WallMicros()).status()));
  }
  RETURN_IF_ERROR(OfOption("--state-dir", StateDirectory::Check(options.state_directory)));
  const std::string& spill = options.tiers.spill_folder;
  std::error_code error;
  if (!spill.empty() && spill != options.state_directory &&
      !std::filesystem::is_directory(spill, error)) {
    return absl::NotFoundError(
        absl::StrCat("--spill-folder ", spill, ": no such folder; make it on a fast disk"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const Options& options, ServerParts parts) {
  RETURN_IF_ERROR(RefuseFiles(options.models));
  std::unique_ptr<Server> server(new Server());
  ASSIGN_OR_RETURN(server->access_, AccessControl::Create(options.access_file));
  RETURN_IF_ERROR(server->OpenStore(options, parts));
  server->catalog_ = std::make_unique<ModelCatalog>(options.models, options.models_directory);
  LogUnservable(*server->catalog_);
  RunnerOptions runner =
      MakeRunnerOptions(options, MakeRpcLimits(options).parse, server->state_->path());
  ASSIGN_OR_RETURN(const std::string device,
                   ChooseDevice(options.device, options.compute_type, options.sparse_attention,
                                runner.engine.tiers));
  LOG(INFO) << "device computes_on=\"" << device << "\"";
  RETURN_IF_ERROR(FindHardware(options, runner));
  server->tenants_ = std::make_unique<TenantLimits>(*server->access_, server->clock_,
                                                    options.max_uploads);
  runner.tenant_weight = [tenants = server->tenants_.get()](const std::string& tenant) {
    return tenants->QuotaOf(tenant).weight;
  };
  runner.metrics = server->metrics_;
  runner.disk_is_full = [disk = server->disk_.get()] { return disk->full(); };
  server->runner_ = std::make_unique<Runner>(std::move(runner), *server->store_, *server->catalog_,
                                             std::move(parts.engine_factory), server->clock_);
  server->on_drain_set_ = parts.on_drain_set;
  server->ApplyDrain();
  RETURN_IF_ERROR(server->Listen(options, parts));
  server->runner_->Start();
  server->disk_->Watch([runner = server->runner_.get()] { runner->Wake(); });
  server->health_ = std::make_unique<HealthWatch>(*server->context_, *server->listener_);
  return server;
}

absl::Status Server::OpenStore(const Options& options, const ServerParts& parts) {
  ASSIGN_OR_RETURN(state_, StateDirectory::Open(options.state_directory));
  if (!options.tls.certificate.empty()) {
    ASSIGN_OR_RETURN(tls_, TlsRotation::Create(options.tls, state_->tls_path(), clock_));
  }
  disk_ = std::make_unique<DiskGuard>(DiskGuardOptions{
      .path = state_->ballast_path(), .ballast_bytes = options.disk_ballast_bytes});
  ASSIGN_OR_RETURN(std::unique_ptr<SqliteJobStore> store,
                   SqliteJobStore::Open({.path = state_->database_path()}));
  database_ = store.get();
  StoreActorOptions actor;
  actor.metrics = metrics_;
  actor.on_fatal = parts.on_fatal;
  actor.on_full = [this] { return disk_->MakeRoom(); };
  store_ = std::make_unique<StoreActor>(std::move(store), std::move(actor));
  RETURN_IF_ERROR(RecoverState(*store_, *state_));
  uploads_ =
      std::make_unique<KeptUploads>(KeptUploadsOptions{.directory = state_->uploads_path(),
                                                       .max_idle_bytes = options.max_input_bytes},
                                    clock_);
  JanitorOptions janitor;
  janitor.state_directory = state_->path();
  janitor.keep_results_us = options.keep_results_days * kMicrosPerDay;
  janitor.keep_records_us = options.keep_records_days * kMicrosPerDay;
  janitor.on_round = [this] {
    uploads_->RemoveExpired();
    if (tls_ != nullptr) {
      tls_->Reload();
    }
  };
  janitor_ = std::make_unique<Janitor>(std::move(janitor), *store_, clock_);
  return absl::OkStatus();
}

absl::Status Server::Listen(const Options& options, const ServerParts& parts) {
  tasks_ = std::make_unique<TaskPool>(kTaskThreads, kMaxQueuedTasks);
  scans_ = std::make_unique<TaskPool>(kScanThreads, kMaxQueuedScans);
  context_ = std::unique_ptr<RpcContext>(new RpcContext{
      .access = *access_,
      .tenants = *tenants_,
      .store = *store_,
      .catalog = *catalog_,
      .clock = clock_,
      .tasks = *tasks_,
      .scans = *scans_,
      .calls = calls_,
      .uploads = *uploads_,
      .janitor = *janitor_,
      .disk = *disk_,
      .metrics = *metrics_,
      .tls = tls_.get(),
      .tokens = PageTokens(),
      .limits = MakeRpcLimits(options),
      .jobs_directory = state_->jobs_path(),
      .uploads_directory = state_->uploads_path(),
      .jobs_prefix = "jobs",
      .default_compute_type = ChoiceOf(options.compute_type),
      .default_kv_type = options.kv_type,
      .default_sparse_attention = options.sparse_attention,
      .allow_lossy = options.allow_lossy,
      .runner_status = [this] { return runner_->status(); },
      .timeline = [this] { return runner_->timeline(); },
      .plan_for =
          [this](const ModelKey& key, const WorkloadProfile& workload,
                 const std::vector<DType>& kv_types) {
            return runner_->PlanFor(key, workload, kv_types);
          },
      .text_of = [this](const CatalogModel& model) { return runner_->TextOf(model); },
      .set_drain = [this](bool drain) { return SetDrain(drain); },
      .backup = [this](const std::string& directory) { return Backup(directory); }});
  context_->limits.heartbeat_interval_us = parts.heartbeat_interval_us;
  context_->limits.stalled_reader_us = parts.stalled_reader_us;
  jobs_ = std::make_unique<JobServiceRpc>(*context_);
  const v1::ServerInfo info =
      MakeInfo(options, context_->limits, store_->store().description(), clock_.WallMicros());
  info_ = std::make_unique<ServerServiceRpc>(*context_, info);
  ListenerOptions listener;
  listener.addresses = options.listen;
  if (tls_ != nullptr) {
    listener.tls = tls_->served();
    listener.needs_client_certificate = !options.allow_token_only;
  }
  listener.max_connections = options.max_connections;
  listener.max_streams_per_connection = options.max_streams_per_connection;
  listener.max_metadata_bytes = options.max_metadata_bytes;
  listener.idle_connection_us = options.idle_connection_s * kMicrosPerSecond;
  listener.memory_quota_bytes = options.rpc_memory_bytes;
  listener.reflection = options.access_file.empty();
  listener.max_message_bytes = context_->limits.max_message_bytes;
  listener.metrics = metrics_;
  ASSIGN_OR_RETURN(listener_, Listener::Start(listener, {jobs_.get(), info_.get()}, clock_));
  return options.http_listen.empty() ? absl::OkStatus() : ServeHttp(options.http_listen, info);
}

absl::Status Server::ServeHttp(const std::string& address, const v1::ServerInfo& info) {
  const auto status = [this, info] {
    return ReadDaemonStatus(*context_, info, state_->database_path());
  };
  ASSIGN_OR_RETURN(
      http_, HttpServer::Start(
                 address, {{"/livez", [] { return HttpResponse{.body = "ok\n"}; }},
                           {"/readyz", [this] { return ReadinessPage(CheckReadiness(*context_)); }},
                           {"/statusz", [status] {
                              return HttpResponse{.content_type = "text/html; charset=utf-8",
                                                  .body = StatusPage(status(), RecentProblems())};
                            }},
                           {"/metrics", [this, status] {
                              return HttpResponse{.content_type = kMetricsType,
                                                  .body = MetricsPage(status(), *metrics_)};
                            }}}));
  return absl::OkStatus();
}

void Server::Reload() {
  if (tls_ != nullptr) {
    tls_->Reload();
  }
  if (const absl::Status status = access_->Reload(); !status.ok()) {
    LOG(ERROR) << "access_file_refused error=\"" << status.message()
               << "\" action=\"what was read before stays in force\"";
    return;
  }
  const std::shared_ptr<const AccessList> list = access_->current();
  if (list != nullptr && list->entries().empty()) {
    LOG(WARNING) << "access_file_empty action=\"nobody may call: give it a line (nightshiftd "
                    "make-token), then SIGHUP\"";
  }
  LOG(INFO) << "reloaded access_entries=" << (list == nullptr ? 0 : list->entries().size());
}

Server::~Server() {
  if (listener_ != nullptr) {
    Drain();
  }
}

absl::Status Server::CheckAlive(int64_t timeout_us) {
  // Shared: the answer may come when nobody waits any more.
  const auto answered = std::make_shared<std::promise<void>>();
  std::future<void> answer = answered->get_future();
  const absl::Status queued = store_->Write(
      "", [](JobStore& /*store*/) { return absl::OkStatus(); },
      [answered](const absl::Status& /*status*/) { answered->set_value(); });
  const std::chrono::microseconds patience(timeout_us);
  if (!queued.ok() || answer.wait_for(patience) != std::future_status::ready) {
    return absl::UnavailableError("the store's thread does not take a write");
  }
  for (const std::string& address : drained_ ? std::vector<std::string>() : addresses()) {
    RETURN_IF_ERROR(ProbeListener(address, timeout_us));
  }
  return absl::OkStatus();
}

absl::Status Server::SetDrain(bool drain) {
  MutexLock lock(drain_mutex_);
  RETURN_IF_ERROR(state_->KeepDrained(drain));
  ApplyDrain();
  return absl::OkStatus();
}

void Server::ApplyDrain() {
  const bool drained = state_->IsDrained();
  if (drained) {
    LOG(WARNING) << "drained action=\"nothing is accepted or runs, also after a restart, until "
                    "nightshift server drain --undo\"";
  } else if (calls_.drained()) {
    LOG(INFO) << "drain_undone";
  }
  calls_.SetDrained(drained);
  runner_->Hold(drained);
  if (health_ != nullptr) {
    health_->Look();
  }
  on_drain_set_(drained);
}

absl::StatusOr<v1::BackupResponse> Server::Backup(const std::string& directory) {
  ASSIGN_OR_RETURN(const BackupReport report,
                   BackupState(*database_, *janitor_, state_->path(), directory));
  v1::BackupResponse response;
  response.set_jobs(report.jobs);
  response.set_bytes(report.bytes);
  return response;
}

bool Server::Drain() {
  if (drained_) {
    return calls_ended_;
  }
  drained_ = true;
  calls_.Drain();
  if (health_ != nullptr) {
    health_->Look();
  }
  disk_->StopWatching();
  runner_->Drain();
  calls_ended_ = listener_->Stop(patience_us_.load());
  if (!calls_ended_) {
    LOG(WARNING) << "calls_cancelled patience_us=" << patience_us_.load();
  }
  return calls_ended_;
}

}  // namespace nightshift
