#include "engine/process/engine_process.h"

#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"
#include "kernels/base/status_macros.h"

namespace nightshift {

absl::StatusOr<std::unique_ptr<Engine>> EngineProcess::Create(const EngineOptions& options) {
  RETURN_IF_ERROR(options.Validate());
  ASSIGN_OR_RETURN(auto ends, MessageSocket::Pair());
  // The pack is for people who look at ps.
  ASSIGN_OR_RETURN(std::unique_ptr<ChildProcess> child,
                   ChildProcess::Spawn({"nightshiftd", kEngineArgument, options.pack_path},
                                       ends.second));
  ends.second.Close();
  LOG(INFO) << "engine_process_started pid=" << child->pid() << " pack=" << options.pack_path;
  std::unique_ptr<EngineProcess> engine(
      new EngineProcess(std::move(child), MessageSocket(std::move(ends.first))));
  ASSIGN_OR_RETURN(const EngineAnswer answer,
                   engine->Ask({.kind = CallKind::kCreate, .options = options}));
  RETURN_IF_ERROR(answer.status);
  return engine;
}

EngineProcess::EngineProcess(std::unique_ptr<ChildProcess> child, MessageSocket socket)
    : child_(std::move(child)), socket_(std::move(socket)) {}

EngineProcess::~EngineProcess() {
  socket_.Close();
  child_->WaitForEnd();
}

absl::StatusOr<EngineAnswer> EngineProcess::Exchange(const EngineCall& call) {
  RETURN_IF_ERROR(socket_.Send(EncodeCall(call)));
  ASSIGN_OR_RETURN(const std::string bytes, socket_.Receive());
  ASSIGN_OR_RETURN(EngineAnswer answer, DecodeAnswer(bytes));
  if (answer.outcomes.size() != call.requests.size()) {
    return absl::DataLossError(absl::StrCat("admit ", call.requests.size(), " requests: ",
                                            answer.outcomes.size(), " outcomes came back"));
  }
  return answer;
}

absl::StatusOr<EngineAnswer> EngineProcess::Ask(const EngineCall& call) {
  RETURN_IF_ERROR(health_);
  absl::StatusOr<EngineAnswer> answer = Exchange(call);
  if (!answer.ok()) {
    Lose(answer.status());
    return health_;
  }
  last_.info = answer->info;
  last_.usage = answer->usage;
  last_.num_held = answer->num_held;
  return answer;
}

void EngineProcess::Lose(const absl::Status& fault) {
  socket_.Close();
  const ChildEnd end = child_->WaitForEnd();
  const std::string how = absl::IsUnavailable(fault)
                              ? end.ToString()
                              : absl::StrCat(end.ToString(), "; before that: ", fault.message());
  health_ = end.signal == SIGKILL ? absl::UnavailableError(how) : absl::InternalError(how);
  last_.num_held = 0;
}

absl::Status EngineProcess::Health() {
  if (health_.ok() && socket_.IsClosed()) {
    Lose(absl::UnavailableError("the other end is closed"));
  }
  return health_;
}

std::vector<AdmitOutcome> EngineProcess::Admit(std::vector<EngineRequest> requests) {
  const EngineCall call = {.kind = CallKind::kAdmit, .requests = std::move(requests)};
  absl::StatusOr<EngineAnswer> answer = Ask(call);
  if (answer.ok()) {
    return std::move(answer->outcomes);
  }
  std::vector<AdmitOutcome> outcomes;
  for (const EngineRequest& request : call.requests) {
    outcomes.push_back({.id = request.id, .status = absl::OkStatus()});
  }
  return outcomes;
}

absl::StatusOr<SweepResult> EngineProcess::Sweep() {
  ASSIGN_OR_RETURN(EngineAnswer answer, Ask({.kind = CallKind::kSweep}));
  RETURN_IF_ERROR(answer.status);
  return std::move(answer.sweep);
}

std::vector<EngineRequest> EngineProcess::Suspend(const std::vector<uint64_t>& ids) {
  absl::StatusOr<EngineAnswer> answer = Ask({.kind = CallKind::kSuspend, .ids = ids});
  return answer.ok() ? std::move(answer->requests) : std::vector<EngineRequest>();
}

void EngineProcess::Retire(const std::vector<uint64_t>& ids) {
  if (!ids.empty()) {
    // Where the process has ended they are dropped too; the next Sweep tells.
    const absl::Status ignored = Ask({.kind = CallKind::kRetire, .ids = ids}).status();
  }
}

absl::StatusOr<std::vector<EngineRequest>> EngineProcess::ApplyPlan(const EngineOptions& options) {
  ASSIGN_OR_RETURN(EngineAnswer answer, Ask({.kind = CallKind::kApplyPlan, .options = options}));
  RETURN_IF_ERROR(answer.status);
  return std::move(answer.requests);
}

}  // namespace nightshift
