// `nightshift evaluate`: how well a model predicts a text, and how far it is from another one.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

// One ordinary job a model, whose rows score choices; the same command again finds the same jobs.
ExitCode EvaluateCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
