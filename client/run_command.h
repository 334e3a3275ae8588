// `nightshift run`: from a file of requests to a file of results.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

// Submits (or finds) the job of an input file, follows it, and makes the output file appear whole.
ExitCode RunCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
