// ServeEngine: an engine on the far side of a socket, and the process around it.
#pragma once

#include "absl/status/status.h"

#include "engine/engine.h"
#include "engine/process/message_socket.h"

namespace nightshift {

// Answers calls, of which the first is kCreate, until the other end closes. Errors: of the socket,
// and DATA_LOSS for what is no call or comes at the wrong time.
absl::Status ServeEngine(MessageSocket& socket, const EngineFactory& factory);

// Whether an executable's arguments say that EngineProcess (engine_process.h) has started it.
bool IsEngineProcess(int argc, const char* const* argv);

// The life of that process, to be called in main: a name of its own, first of all to be killed when
// memory is short, gone when the process that started it is; then ServeEngine on kChildFd. Signals
// that end the daemon are blocked in it: the daemon decides when it ends. Returns the exit code.
int RunEngineProcess(const EngineFactory& factory);

}  // namespace nightshift
