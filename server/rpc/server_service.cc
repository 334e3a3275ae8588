#include "server/rpc/server_service.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"
#include "server/rpc/call.h"
#include "server/rpc/status_bridge.h"

namespace nightshift {
namespace {

v1::Model MakeModel(const CatalogModel& model, const std::string& loaded_model) {
  v1::Model wire;
  wire.set_name(model.name);
  wire.set_architecture(model.architecture);
  wire.set_digest(model.digest);
  wire.set_parameters(model.parameters);
  wire.set_weights(DTypeName(model.weights));
  wire.set_bytes(model.bytes);
  wire.set_context_tokens(model.context_tokens);
  wire.set_has_tokenizer(model.has_tokenizer);
  wire.set_has_chat_template(model.has_chat_template);
  wire.set_loaded(model.name == loaded_model);
  if (!model.status.ok()) {
    constexpr int64_t kMaxErrorBytes = 1024;
    wire.set_error(CleanText(model.status.message(), kMaxErrorBytes));
  }
  return wire;
}

// Looks into the models' folder: on a task thread.
class ListModelsCall : public UnaryCall<v1::ListModelsResponse> {
 public:
  ListModelsCall(grpc::CallbackServerContext* context, v1::ListModelsRequest request,
                 v1::ListModelsResponse* response, RpcContext& rpc)
      : UnaryCall(context, response), request_(std::move(request)), rpc_(rpc) {}

  void Start() {
    const auto self = std::static_pointer_cast<ListModelsCall>(shared_from_this());
    const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->List()); });
    if (!pushed.ok()) {
      Respond(pushed);
    }
  }

 private:
  absl::StatusOr<v1::ListModelsResponse> List() {
    constexpr int64_t kDefaultPage = 50;
    constexpr int64_t kMaxPage = 1000;
    ASSIGN_OR_RETURN(const int64_t page_size,
                     PageSize(request_.page_size(), kDefaultPage, kMaxPage));
    PagePosition after;
    if (!request_.page_token().empty()) {
      ASSIGN_OR_RETURN(after, rpc_.tokens.Read("models", request_.page_token()));
    }
    rpc_.catalog.Rescan();
    std::vector<CatalogModel> models = rpc_.catalog.List();
    std::sort(models.begin(), models.end(),
              [](const CatalogModel& a, const CatalogModel& b) { return a.name < b.name; });
    const std::string loaded = rpc_.runner_status().loaded_model;
    v1::ListModelsResponse response;
    for (const CatalogModel& model : models) {
      if (model.name <= after.text) {
        continue;
      }
      if (response.models_size() == page_size) {
        const std::string& last = response.models(response.models_size() - 1).name();
        response.set_next_page_token(rpc_.tokens.Write("models", {0, last}));
        break;
      }
      *response.add_models() = MakeModel(model, loaded);
    }
    return response;
  }

  const v1::ListModelsRequest request_;
  RpcContext& rpc_;
};

class GetModelCall : public UnaryCall<v1::Model> {
 public:
  GetModelCall(grpc::CallbackServerContext* context, std::string name, v1::Model* response,
               RpcContext& rpc)
      : UnaryCall(context, response), name_(std::move(name)), rpc_(rpc) {}

  void Start() {
    const auto self = std::static_pointer_cast<GetModelCall>(shared_from_this());
    const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->Get()); });
    if (!pushed.ok()) {
      Respond(pushed);
    }
  }

 private:
  absl::StatusOr<v1::Model> Get() {
    rpc_.catalog.Rescan();
    for (const CatalogModel& model : rpc_.catalog.List()) {
      if (model.name == name_) {
        return MakeModel(model, rpc_.runner_status().loaded_model);
      }
    }
    constexpr int64_t kMaxQuotedBytes = 128;
    const std::string name = CleanText(name_, kMaxQuotedBytes);
    return MakeError(absl::StatusCode::kNotFound, reason::kModelNotFound,
                     absl::StrCat("model ", name, " is not known"), {{"model", name}});
  }

  const std::string name_;
  RpcContext& rpc_;
};

// What the daemon is and does now; takes a moment, on gRPC's thread.
class ServerInfoCall : public UnaryCall<v1::ServerInfo> {
 public:
  ServerInfoCall(grpc::CallbackServerContext* context, v1::ServerInfo* response,
                 std::function<v1::ServerInfo()> info, RpcContext& /*rpc*/)
      : UnaryCall(context, response), info_(std::move(info)) {}
  void Start() { Respond(info_()); }

 private:
  const std::function<v1::ServerInfo()> info_;
};

// Keeps what is asked for on disk: on a task thread.
class SetDrainCall : public UnaryCall<v1::ServerInfo> {
 public:
  SetDrainCall(grpc::CallbackServerContext* context, bool drain, v1::ServerInfo* response,
               std::function<v1::ServerInfo()> info, RpcContext& rpc)
      : UnaryCall(context, response), drain_(drain), info_(std::move(info)), rpc_(rpc) {}

  void Start() {
    const auto self = std::static_pointer_cast<SetDrainCall>(shared_from_this());
    const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->Set()); });
    if (!pushed.ok()) {
      Respond(pushed);
    }
  }

 private:
  absl::StatusOr<v1::ServerInfo> Set() {
    RETURN_IF_ERROR(rpc_.set_drain(drain_));
    return info_();
  }

  const bool drain_;
  const std::function<v1::ServerInfo()> info_;
  RpcContext& rpc_;
};

// Copies the whole state: on a task thread.
class BackupCall : public UnaryCall<v1::BackupResponse> {
 public:
  BackupCall(grpc::CallbackServerContext* context, std::string directory,
             v1::BackupResponse* response, RpcContext& rpc)
      : UnaryCall(context, response), directory_(std::move(directory)), rpc_(rpc) {}

  void Start() {
    const auto self = std::static_pointer_cast<BackupCall>(shared_from_this());
    const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->Copy()); });
    if (!pushed.ok()) {
      Respond(pushed);
    }
  }

 private:
  absl::StatusOr<v1::BackupResponse> Copy() {
    constexpr size_t kMaxPathBytes = 3000;
    if (directory_.empty() || directory_[0] != '/' || directory_.size() > kMaxPathBytes ||
        directory_.find('\0') != std::string::npos) {
      return MakeFieldError(reason::kFieldInvalid,
                            {{"directory", "must be an absolute path on the daemon's machine"}});
    }
    absl::StatusOr<v1::BackupResponse> copied = rpc_.backup(directory_);
    if (absl::IsInvalidArgument(copied.status())) {
      return MakeFieldError(reason::kFieldInvalid,
                            {{"directory", std::string(copied.status().message())}});
    }
    if (absl::IsAlreadyExists(copied.status())) {
      return MakeError(absl::StatusCode::kAlreadyExists, reason::kTargetExists,
                       copied.status().message());
    }
    return copied;
  }

  const std::string directory_;
  RpcContext& rpc_;
};

// Writes megabytes of text: on a task thread.
class DumpTimelineCall : public UnaryCall<v1::Timeline> {
 public:
  DumpTimelineCall(grpc::CallbackServerContext* context, v1::Timeline* response, RpcContext& rpc)
      : UnaryCall(context, response), rpc_(rpc) {}

  void Start() {
    const auto self = std::static_pointer_cast<DumpTimelineCall>(shared_from_this());
    const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->Dump()); });
    if (!pushed.ok()) {
      Respond(pushed);
    }
  }

 private:
  absl::StatusOr<v1::Timeline> Dump() {
    const std::vector<StepTimes> steps = rpc_.timeline();
    if (steps.empty()) {
      return MakeError(absl::StatusCode::kFailedPrecondition, reason::kNoSweep,
                       "no sweep has run yet; submit a job and ask again once it is running");
    }
    v1::Timeline timeline;
    timeline.set_chrome_trace_json(ChromeTrace(steps));
    return timeline;
  }

  RpcContext& rpc_;
};

}  // namespace

grpc::ServerUnaryReactor* ServerServiceRpc::GetServerInfo(
    grpc::CallbackServerContext* context, const v1::GetServerInfoRequest* /*request*/,
    v1::ServerInfo* response) {
  return StartCall<ServerInfoCall>(context_, "nightshift.v1.ServerService/GetServerInfo", context,
                                   response, [this] { return Info(); });
}

grpc::ServerUnaryReactor* ServerServiceRpc::ListModels(grpc::CallbackServerContext* context,
                                                       const v1::ListModelsRequest* request,
                                                       v1::ListModelsResponse* response) {
  return StartCall<ListModelsCall>(context_, "nightshift.v1.ServerService/ListModels", context,
                                   *request, response);
}

grpc::ServerUnaryReactor* ServerServiceRpc::GetModel(grpc::CallbackServerContext* context,
                                                     const v1::GetModelRequest* request,
                                                     v1::Model* response) {
  return StartCall<GetModelCall>(context_, "nightshift.v1.ServerService/GetModel", context,
                                 request->name(), response);
}

grpc::ServerUnaryReactor* ServerServiceRpc::SetDrain(grpc::CallbackServerContext* context,
                                                     const v1::SetDrainRequest* request,
                                                     v1::ServerInfo* response) {
  return StartCall<SetDrainCall>(context_, "nightshift.v1.ServerService/SetDrain", context,
                                 request->drain(), response, [this] { return Info(); });
}

grpc::ServerUnaryReactor* ServerServiceRpc::Backup(grpc::CallbackServerContext* context,
                                                   const v1::BackupRequest* request,
                                                   v1::BackupResponse* response) {
  return StartCall<BackupCall>(context_, "nightshift.v1.ServerService/Backup", context,
                               request->directory(), response);
}

v1::ServerInfo ServerServiceRpc::Info() const {
  const RunnerStatus runner = context_.runner_status();
  v1::ServerInfo info = info_;
  info.set_draining(context_.calls.drained());
  info.set_loaded_model(runner.loaded_model);
  info.set_device(runner.device);
  info.set_bottleneck(runner.bottleneck);
  if (context_.tls != nullptr) {
    constexpr int64_t kMaxProblemBytes = 1024;
    const TlsState tls = context_.tls->state();
    info.mutable_tls()->mutable_expire_time()->set_seconds(tls.expire_time_us / 1'000'000);
    info.mutable_tls()->set_refused(CleanText(tls.problem, kMaxProblemBytes));
  }
  v1::Planning& planning = *info.mutable_planning();
  if (runner.policy->hardware != nullptr) {
    constexpr int64_t kMaxNameBytes = 256;
    planning.set_hardware(CleanText(runner.policy->hardware->name, kMaxNameBytes));
  }
  planning.set_plans(runner.plan_counts.plans);
  planning.set_replans(runner.plan_counts.replans);
  planning.set_failed_allocations(runner.plan_counts.failed_allocations);
  planning.set_predicted_jobs(runner.plan_counts.predicted_jobs);
  planning.set_last_time_ratio(runner.plan_counts.last_time_ratio);
  planning.set_median_time_ratio(runner.plan_counts.median_time_ratio);
  return info;
}

grpc::ServerUnaryReactor* ServerServiceRpc::DumpTimeline(grpc::CallbackServerContext* context,
                                                         const v1::DumpTimelineRequest* /*request*/,
                                                         v1::Timeline* response) {
  return StartCall<DumpTimelineCall>(context_, "nightshift.v1.ServerService/DumpTimeline", context,
                                     response);
}

v1::Limits MakeLimits(const RpcLimits& limits) {
  v1::Limits wire;
  wire.set_max_message_bytes(limits.max_message_bytes);
  wire.set_max_chunk_bytes(limits.max_chunk_bytes);
  wire.set_max_line_bytes(limits.parse.max_line_bytes);
  wire.set_max_prompt_bytes(limits.parse.max_prompt_bytes);
  wire.set_max_requests_per_job(limits.max_rows);
  wire.set_max_custom_id_bytes(limits.parse.max_custom_id_bytes);
  wire.set_max_choices(limits.parse.max_choices);
  return wire;
}

}  // namespace nightshift
