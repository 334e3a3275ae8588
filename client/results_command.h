// `nightshift results`: the results of a job that exists.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

// Writes them to a file that appears when it is complete, or to standard output. Continues what an
// earlier `results` or `run` of the same job and file left.
ExitCode ResultsCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
