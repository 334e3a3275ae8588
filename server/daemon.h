// RunDaemon: a Server from start to the signal that ends it.
#pragma once

#include "kernels/base/exit_code.h"
#include "server/options.h"
#include "server/server.h"

namespace nightshift {

// To be called first in main, before any thread: blocks the signals that RunDaemon waits for, so
// that no other thread takes them, and bounds what malloc keeps back.
void PrepareProcess();

// Undoes that for a command that nobody drains: the same signals end the process, as they end others.
void EndOnSignals();

// Serves until SIGTERM or SIGINT, then drains: a second signal cancels open calls, and after the
// drain timeout the process kills itself, which loses no result. Prints the effective options first
// and the addresses when they accept calls; tells systemd and options.ready_file.
// Log messages are for people.
ExitCode RunDaemon(const CommandLine& line, EngineFactory engine_factory);

}  // namespace nightshift
