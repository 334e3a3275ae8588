// `nightshift complete`: what shells ask for at each Tab.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

// Prints the candidates for the last of the line's words. A daemon that is not there or slow adds
// none, and says nothing.
ExitCode CompleteCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
