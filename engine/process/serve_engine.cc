#include "engine/process/serve_engine.h"

#include <algorithm>
#include <csignal>
#include <memory>
#include <string>
#include <utility>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "engine/process/child_process.h"
#include "engine/process/engine_process.h"
#include "engine/process/messages.h"
#include "kernels/base/log.h"
#include "kernels/base/log_format.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/thread_name.h"

namespace nightshift {
namespace {

constexpr int kExitLost = 1;
constexpr int kExitUsage = 2;
// As ps shows it.
constexpr char kProcessName[] = "nightshift-eng";

// Of what a process's oom_score_adj adds: 1000 is all memory there is. With half of that on top of
// the daemon's the engine is chosen first, however small it is beside its neighbours.
constexpr int kOomScoreAbove = 500;
constexpr int kMaxOomScore = 1000;

EngineAnswer Carry(EngineCall call, std::unique_ptr<Engine>& engine, const EngineFactory& factory) {
  EngineAnswer answer;
  switch (call.kind) {
    case CallKind::kCreate: {
      absl::StatusOr<std::unique_ptr<Engine>> created = factory(call.options);
      answer.status = created.status();
      engine = created.ok() ? *std::move(created) : nullptr;
      break;
    }
    case CallKind::kAdmit:
      answer.outcomes = engine->Admit(std::move(call.requests));
      break;
    case CallKind::kSweep: {
      absl::StatusOr<SweepResult> sweep = engine->Sweep();
      answer.status = sweep.status();
      answer.sweep = sweep.ok() ? *std::move(sweep) : SweepResult();
      break;
    }
    case CallKind::kSuspend:
      answer.requests = engine->Suspend(call.ids);
      break;
    case CallKind::kRetire:
      engine->Retire(call.ids);
      break;
    case CallKind::kApplyPlan: {
      absl::StatusOr<std::vector<EngineRequest>> suspended = engine->ApplyPlan(call.options);
      answer.status = suspended.status();
      answer.requests = suspended.ok() ? *std::move(suspended) : std::vector<EngineRequest>();
      break;
    }
  }
  if (engine != nullptr) {
    answer.info = engine->info();
    answer.usage = engine->Usage();
    answer.num_held = engine->num_held();
  }
  return answer;
}

// Without /proc the engine is as likely to be killed as the daemon is: no reason not to serve.
void OfferToOomKiller() {
  const std::string path = "/proc/self/oom_score_adj";
  constexpr int64_t kMaxBytes = 64;
  int score = 0;
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxBytes);
  if (!text.ok() || !absl::SimpleAtoi(*text, &score)) {
    return;
  }
  const FileDescriptor file(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const std::string raised = absl::StrCat(std::min(score + kOomScoreAbove, kMaxOomScore));
  if (const absl::Status written = WriteAll(file.get(), raised, path); !written.ok()) {
    LOG(WARNING) << "oom_score_not_raised error=\"" << written.message() << "\"";
  }
}

}  // namespace

absl::Status ServeEngine(MessageSocket& socket, const EngineFactory& factory) {
  std::unique_ptr<Engine> engine;
  bool created = false;
  while (true) {
    absl::StatusOr<std::string> bytes = socket.Receive();
    if (absl::IsUnavailable(bytes.status())) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(bytes.status());
    ASSIGN_OR_RETURN(EngineCall call, DecodeCall(*bytes));
    const bool creates = call.kind == CallKind::kCreate;
    if (creates == created || (!creates && engine == nullptr)) {
      return absl::DataLossError(absl::StrCat("serve engine: call ", static_cast<int>(call.kind),
                                              " at a time when it makes no sense"));
    }
    created = true;
    RETURN_IF_ERROR(
        socket.Send(EncodeAnswer(Carry(std::move(call), engine, factory))));
  }
}

bool IsEngineProcess(int argc, const char* const* argv) {
  return argc > 1 && absl::string_view(argv[1]) == kEngineArgument;
}

int RunEngineProcess(const EngineFactory& factory) {
  InheritLogFormat();
  struct stat information {};
  if (fstat(kChildFd, &information) != 0 || !S_ISSOCK(information.st_mode)) {
    LOG(ERROR) << "engine_process_refused reason=\"nightshiftd starts it by itself when a model is "
                  "needed\"";
    return kExitUsage;
  }
  MessageSocket socket{FileDescriptor(kChildFd)};
  fcntl(kChildFd, F_SETFD, FD_CLOEXEC);
  // Where the parent is gone before this, the socket tells.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  NameThread(kProcessName);
  OfferToOomKiller();
  const absl::Status served = ServeEngine(socket, factory);
  if (!served.ok()) {
    LOG(ERROR) << "engine_process_stopped error=\"" << served.message() << "\"";
  }
  return served.ok() ? 0 : kExitLost;
}

}  // namespace nightshift
