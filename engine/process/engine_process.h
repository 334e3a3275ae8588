// EngineProcess: the engine as a child process, so that what ends it (a device's fault, the kernel
// short of memory, kill -9) ends none of the daemon's work.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/process/child_process.h"
#include "engine/process/message_socket.h"
#include "engine/process/messages.h"

namespace nightshift {

// The first argument of an executable that is to be an engine process (serve_engine.h).
inline constexpr char kEngineArgument[] = "engine";

// One thread, which must live as long: a child ends with the thread that started it. Each call is
// one message and waits for one answer; info, Usage and num_held are of the last answer.
//
// When the process has ended, Health and Sweep tell how: UNAVAILABLE when it was killed (somebody
// needed its memory, or its end), INTERNAL when it ended itself. Admit takes what it is offered, so
// that who waits in the block learns it from the next Sweep; Suspend gives nothing back.
class EngineProcess : public Engine {
 public:
  // Starts the process, whose executable is this one, and creates an engine in it. Errors: as
  // Engine::Create; as above when it ends meanwhile.
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options);
  // Ends the process, and waits for that.
  ~EngineProcess() override;

  const EngineInfo& info() const override { return last_.info; }
  EngineUsage Usage() const override { return last_.usage; }
  absl::Status Health() override;
  std::vector<AdmitOutcome> Admit(std::vector<EngineRequest> requests) override;
  absl::StatusOr<SweepResult> Sweep() override;
  std::vector<EngineRequest> Suspend(const std::vector<uint64_t>& ids) override;
  void Retire(const std::vector<uint64_t>& ids) override;
  absl::StatusOr<std::vector<EngineRequest>> ApplyPlan(const EngineOptions& options) override;
  int64_t num_held() const override { return last_.num_held; }

  pid_t pid() const { return child_->pid(); }

 private:
  EngineProcess(std::unique_ptr<ChildProcess> child, MessageSocket socket);

  // The answer, of which info, usage and num_held stay in last_. An error is health_.
  absl::StatusOr<EngineAnswer> Ask(const EngineCall& call);
  absl::StatusOr<EngineAnswer> Exchange(const EngineCall& call);
  // Ends what is left of the process, for which `fault` is no more than an occasion.
  void Lose(const absl::Status& fault);

  std::unique_ptr<ChildProcess> child_;
  MessageSocket socket_;
  absl::Status health_;
  EngineAnswer last_;
};

}  // namespace nightshift
