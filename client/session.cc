#include "client/session.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/rpc_error.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

bool MakesJobs(const CommandLine& line) {
  return line.command == Command::kRun || line.command == Command::kSubmit;
}

std::string StepOfUnavailable(const std::string& reason, const CommandLine& line) {
  if (reason == "SERVER_DRAINED") {
    return line.command == Command::kHealth
               ? ""  // the message says it
               : "run the same command again when it is undone ('nightshift health --wait' waits)";
  }
  if (reason != "NOT_LISTENING") {
    return "see the daemon's log, then run the same command again";
  }
  return absl::StrCat("start one with 'nightshiftd --models DIR', name another with --address",
                      line.command == Command::kRun ? ", or give --model PACK to run without one"
                      : line.command == Command::kEvaluate
                          ? ", or name a PACK by its path to do without one"
                          : "");
}

std::string StepOfNotFound(const std::string& reason) {
  if (reason == "JOB_NOT_FOUND") {
    return "'nightshift list' shows the jobs";
  }
  return reason == "MODEL_NOT_FOUND" ? "'nightshift models' shows the models" : "";
}

std::string StepOfTaken(const std::string& reason) {
  if (reason == "REQUEST_ID_REUSED") {
    return "the same input was submitted before with another --job-id or by another client; use "
           "another --run-key";
  }
  return reason == "JOB_EXISTS" ? "use another --job-id" : "";
}

std::string StepOfExhausted(const std::string& reason) {
  if (reason == "BACKLOG_FULL") {
    return "run the same command again later";
  }
  if (reason == "QUOTA_EXCEEDED") {
    return "";  // the message says what
  }
  return "free disk space, then run the same command again";
}

}  // namespace

ExitCode RunInSession(const CommandLine& line, Console& console,
                      absl::Status (*command)(Session&)) {
  Session session(line, console);
  const absl::Status status = command(session);
  return status.ok() ? ExitCode::kOk : session.Fail(status);
}

std::string NextStepOf(const absl::Status& error, const CommandLine& line) {
  const std::string reason = DetailsOf(error).reason;
  switch (error.code()) {
    case absl::StatusCode::kUnavailable:
      return StepOfUnavailable(reason, line);
    case absl::StatusCode::kDeadlineExceeded:
      return "run the same command again, or allow more with --timeout";
    case absl::StatusCode::kNotFound:
      return StepOfNotFound(reason);
    case absl::StatusCode::kAlreadyExists:
      return StepOfTaken(reason);
    case absl::StatusCode::kResourceExhausted:
      return StepOfExhausted(reason);
    case absl::StatusCode::kInvalidArgument:
      return MakesJobs(line) && !reason.empty() ? "correct it and submit again" : "";
    case absl::StatusCode::kOutOfRange:
      return reason == "SEQ_AHEAD" ? "use a smaller --after" : "";
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
      return reason.empty() ? "" : "see the daemon's log";
    case absl::StatusCode::kUnimplemented:
      return "is this daemon of the same version? 'nightshift server info' says";
    default:
      return "";
  }
}

Session::Session(const CommandLine& line, Console& console)
    : line_(line), console_(console), deadline_(absl::Now() + line.timeout) {}

absl::Status Session::Connect(absl::Duration patience) {
  return ConnectTo(line_.address, patience);
}

absl::Status Session::ConnectPrivate(const PrivateDaemonOptions& options) {
  ASSIGN_OR_RETURN(daemon_, PrivateDaemon::Start(options, [this] { return KeepWaiting(); }));
  return ConnectTo(daemon_->address(), kShortPatience);
}

void Session::StopPrivateDaemon(bool remove_state) {
  client_.reset();
  if (daemon_ == nullptr) {
    return;
  }
  daemon_->Stop();
  if (remove_state) {
    daemon_->RemoveState();
  }
  daemon_.reset();
}

absl::Status Session::ConnectTo(const std::string& address, absl::Duration patience) {
  ClientOptions options;
  options.address = address;
  options.credentials = line_.credentials;
  options.retry.retry_for = patience;
  options.retry.on_retry = [this](const absl::Status& error) { TellTrouble(error); };
  options.keep_waiting = [this] { return KeepWaiting(); };
  ASSIGN_OR_RETURN(client_, Client::Connect(std::move(options)));
  return absl::OkStatus();
}

bool Session::KeepWaiting() {
  return WhyStopped().ok();
}

absl::Status Session::WhyStopped() {
  if (interrupts_.requested()) {
    return absl::CancelledError("interrupted");
  }
  if (absl::Now() >= deadline_) {
    return absl::DeadlineExceededError(
        absl::StrCat("not done within ", absl::FormatDuration(line_.timeout)));
  }
  return daemon_ == nullptr ? absl::OkStatus() : daemon_->CheckAlive();
}

absl::Status Session::Explain(const absl::Status& error) {
  if (error.code() == absl::StatusCode::kCancelled) {
    if (absl::Status why = WhyStopped(); !why.ok()) {
      return why;
    }
  }
  return error;
}

void Session::TellTrouble(const absl::Status& error) {
  if (!std::exchange(in_trouble_, true)) {
    console_.Note(absl::StrCat("the daemon does not answer, trying again (", error.message(), ")"));
  }
}

void Session::TroubleIsOver() {
  if (std::exchange(in_trouble_, false)) {
    console_.Note("the daemon answers again");
  }
}

ExitCode Session::Fail(const absl::Status& error) {
  const absl::Status explained = Explain(error);
  console_.Error(explained, NextStepOf(explained, line_));
  return ExitCodeOf(explained);
}

}  // namespace nightshift
