// Session: what every command needs around a Client: interrupts, a time limit, words about trouble.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "client/client.h"
#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"
#include "client/interrupts.h"
#include "client/private_daemon.h"

namespace nightshift {

// How long a command puts up with a daemon that has gone away.
inline constexpr absl::Duration kShortPatience = absl::Seconds(15);  // a person waits for an answer
inline constexpr absl::Duration kLongPatience = absl::Minutes(10);   // a job is followed

// One command. One thread.
class Session {
 public:
  Session(const CommandLine& line, Console& console);

  // Makes `client`. The daemon at the address of the command line.
  absl::Status Connect(absl::Duration patience);
  // Starts a private daemon and connects to it. `daemon` lives until StopPrivateDaemon.
  absl::Status ConnectPrivate(const PrivateDaemonOptions& options);
  // Stops the private daemon, if there is one, and deletes its state when asked to.
  void StopPrivateDaemon(bool remove_state);

  // False once interrupted, out of time or without a private daemon: calls end with CANCELLED.
  bool KeepWaiting();
  // Why: CANCELLED for an interrupt, DEADLINE_EXCEEDED for the time limit, the daemon's death.
  absl::Status WhyStopped();
  // `error` itself, or WhyStopped for one that is CANCELLED because KeepWaiting said no.
  absl::Status Explain(const absl::Status& error);

  // To be called when the daemon gave a sign of life.
  void TroubleIsOver();

  // Says the error with a next step and returns its exit code.
  ExitCode Fail(const absl::Status& error);

  const CommandLine& line() const { return line_; }
  Console& console() { return console_; }
  Interrupts& interrupts() { return interrupts_; }
  Client& client() { return *client_; }
  bool is_private() const { return daemon_ != nullptr; }
  // True when no earlier run left anything in the private daemon's state directory.
  bool has_new_private_state() const { return daemon_ != nullptr && daemon_->has_new_state(); }

 private:
  absl::Status ConnectTo(const std::string& address, absl::Duration patience);
  void TellTrouble(const absl::Status& error);

  const CommandLine& line_;
  Console& console_;
  Interrupts interrupts_;
  const absl::Time deadline_;
  bool in_trouble_ = false;
  std::unique_ptr<PrivateDaemon> daemon_;
  std::unique_ptr<Client> client_;
};

// The whole of a command that either works or fails.
ExitCode RunInSession(const CommandLine& line, Console& console, absl::Status (*command)(Session&));

// What a person should do about the error; empty when the message says it already. Pure.
std::string NextStepOf(const absl::Status& error, const CommandLine& line);

}  // namespace nightshift
