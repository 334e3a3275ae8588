#include "server/rpc/policy_call.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "server/compression.h"
#include "server/input/rpc_error.h"
#include "server/rpc/job_view.h"
#include "server/rpc/policy_view.h"
#include "server/scheduling/job_context.h"
#include "server/security/caller.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxQuotedBytes = 128;

// What a request is about.
struct Subject {
  std::optional<ModelKey> key;  // nothing: the loaded model
  std::string ended;            // why nothing runs of it any more; empty: it may
};

ComputeType DefaultType(const RpcContext& rpc) {
  return ComputeTypeOf(rpc.default_compute_type, ComputeType::kBF16);
}

absl::StatusOr<Subject> SubjectOfJob(const std::string& tenant, const std::string& name,
                                     RpcContext& rpc) {
  ASSIGN_OR_RETURN(const std::string key, ParseJobName(tenant, name));
  const absl::StatusOr<JobRecord> record = rpc.store.store().GetJob(key);
  if (!record.ok()) {
    return JobError(record.status(), key);
  }
  v1::JobSpec spec;
  (void)spec.ParseFromString(record->spec);  // of one that does not parse nothing ever runs
  Subject subject;
  subject.key = ModelKey{.model = record->model,
                         .compute_type = ComputeTypeOf(spec.compute_type(), DefaultType(rpc)),
                         .kv_type = KvTypeOf(spec.compression().kv()),
                         .sparse_attention = SparseAttentionOf(spec)};
  if (IsTerminal(record->state)) {
    subject.ended =
        absl::StrCat("job ", JobName(key), " has ended; its report tells what was predicted of it");
  }
  return subject;
}

absl::StatusOr<Subject> SubjectOf(const Caller& caller, const std::string& model,
                                  const std::string& job, RpcContext& rpc) {
  if (!job.empty() && !model.empty()) {
    return MakeFieldError(reason::kFieldInvalid,
                          {{"job", "is given beside model; a policy is of one of them"}});
  }
  if (!job.empty()) {
    return SubjectOfJob(caller.tenant, job, rpc);
  }
  if (model.empty()) {
    return Subject();
  }
  rpc.catalog.Rescan();
  const absl::StatusOr<CatalogModel> found = rpc.catalog.Find(model);
  if (absl::IsNotFound(found.status())) {
    const std::string name = CleanText(model, kMaxQuotedBytes);
    return MakeError(absl::StatusCode::kNotFound, reason::kModelNotFound,
                     absl::StrCat("model ", name, " is not known"), {{"model", name}});
  }
  RETURN_IF_ERROR(found.status());
  Subject subject;
  subject.key = ModelKey{.model = found->name, .compute_type = DefaultType(rpc)};
  return subject;
}

// The loaded model's, or why that is not of the subject.
PolicyState PresentState(const Subject& subject, const RpcContext& rpc) {
  const std::shared_ptr<const PolicyState> present = rpc.runner_status().policy;
  const bool is_loaded = !subject.key.has_value() || present->model == subject.key->model;
  if (is_loaded && subject.ended.empty()) {
    return *present;
  }
  PolicyState state;
  state.model = subject.key->model;
  state.compute_type = subject.key->compute_type;
  state.kv_type = subject.key->kv_type;
  state.sparse_attention = subject.key->sparse_attention;
  state.hardware = present->hardware;
  state.stale = present->stale;
  state.reason = !subject.ended.empty() ? subject.ended
                 : present->model.empty()
                     ? absl::StrCat("model ", state.model,
                                    " is not loaded; it is planned for when a job of it runs")
                     : absl::StrCat("model ", state.model, " is not loaded, ", present->model,
                                    " is; it is planned for when a job of it runs");
  return state;
}

// A plan is for what all tenants have queued.
bool MaySeeAllWork(const Caller& caller) {
  return caller.role == Role::kAdmin;
}

absl::StatusOr<WorkloadProfile> WorkloadOf(const v1::ExplainPolicyRequest& request) {
  constexpr int64_t kMany = int64_t{1} << 31;
  std::vector<FieldViolation> violations;
  for (const auto& [field, value, least] :
       {std::tuple("requests", request.requests(), 1),
        std::tuple("prompt_tokens", request.prompt_tokens(), 1),
        std::tuple("output_tokens", request.output_tokens(), 0)}) {
    if (value < least || value > kMany) {
      violations.push_back({field, absl::StrCat("is ", value, ", must be ", least, " to ", kMany)});
    }
  }
  if (!violations.empty()) {
    return MakeFieldError(reason::kFieldOutOfRange, violations);
  }
  WorkloadProfile workload;
  workload.classes = {{.prompt_tokens = request.prompt_tokens(),
                       .output_tokens = request.output_tokens(),
                       .requests = request.requests()}};
  return workload;
}

}  // namespace

void GetPolicyCall::Start() {
  const auto self = std::static_pointer_cast<GetPolicyCall>(shared_from_this());
  const absl::Status pushed = rpc_.tasks.Push([self] { self->Respond(self->Get()); });
  if (!pushed.ok()) {
    Respond(pushed);
  }
}

absl::StatusOr<v1::Policy> GetPolicyCall::Get() {
  ASSIGN_OR_RETURN(const Subject subject,
                   SubjectOf(caller(), request_.model(), request_.job(), rpc_));
  v1::Policy policy = MakePolicy(PresentState(subject, rpc_));
  if (!MaySeeAllWork(caller())) {
    HideWorkload(policy);
  }
  return policy;
}

void ExplainPolicyCall::Start() {
  const auto self = std::static_pointer_cast<ExplainPolicyCall>(shared_from_this());
  const absl::Status pushed = rpc_.scans.Push([self] { self->Respond(self->Explain()); });
  if (!pushed.ok()) {
    Respond(pushed);
  }
}

absl::StatusOr<v1::ExplainPolicyResponse> ExplainPolicyCall::Explain() {
  ASSIGN_OR_RETURN(Subject subject, SubjectOf(caller(), request_.model(), request_.job(), rpc_));
  if (request_.requests() == 0 && request_.prompt_tokens() == 0 && request_.output_tokens() == 0) {
    v1::ExplainPolicyResponse explanation = MakeExplanation(PresentState(subject, rpc_));
    if (!MaySeeAllWork(caller())) {
      HideWorkload(*explanation.mutable_policy());
    }
    return explanation;
  }
  ASSIGN_OR_RETURN(const WorkloadProfile workload, WorkloadOf(request_));
  if (!subject.key.has_value()) {
    const std::shared_ptr<const PolicyState> present = rpc_.runner_status().policy;
    if (present->model.empty()) {
      // None is loaded: the only one that there is.
      rpc_.catalog.Rescan();
      ASSIGN_OR_RETURN(const CatalogModel only, rpc_.catalog.Find(""));
      subject.key = ModelKey{.model = only.name, .compute_type = DefaultType(rpc_)};
    } else {
      subject.key = ModelKey{.model = present->model,
                             .compute_type = present->compute_type,
                             .kv_type = present->kv_type,
                             .sparse_attention = present->sparse_attention};
    }
  }
  absl::StatusOr<PolicyState> state = rpc_.plan_for(*subject.key, workload, {});
  if (absl::IsInvalidArgument(state.status())) {
    return MakeFieldError(reason::kFieldOutOfRange,
                          {{"prompt_tokens", std::string(state.status().message())}});
  }
  RETURN_IF_ERROR(state.status());
  return MakeExplanation(*state);
}

}  // namespace nightshift
