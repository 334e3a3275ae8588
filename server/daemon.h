// RunDaemon: a Server from start to the signal that ends it.
#pragma once

#include "server/options.h"
#include "server/server.h"

namespace nightshift {

// Exit codes of the daemon (sysexits.h for configuration, so that systemd does not restart it).
enum ExitCode : int {
  kExitOk = 0,
  kExitFailure = 1,
  kExitUsage = 2,
  kExitConfig = 78,
};

// To be called first in main, before any thread: blocks the signals that RunDaemon waits for, so
// that no other thread takes them, and bounds what malloc keeps back.
void PrepareProcess();

// Undoes that for a command that nobody drains: the same signals end the process, as they end others.
void EndOnSignals();

// Serves until SIGTERM or SIGINT, then drains: a second signal cancels open calls, and after the
// drain timeout the process kills itself, which loses no result. Prints the effective options first
// and the addresses when they accept calls; tells systemd and options.ready_file.
// Returns the exit code. Log messages are for people.
int RunDaemon(const CommandLine& line, EngineFactory engine_factory);

}  // namespace nightshift
