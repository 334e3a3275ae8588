// `nightshift policy show` and `nightshift policy explain`.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

ExitCode PolicyShowCommand(const CommandLine& line, Console& console);
ExitCode PolicyExplainCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
