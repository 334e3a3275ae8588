// The commands about jobs that do not write result files.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

ExitCode SubmitCommand(const CommandLine& line, Console& console);
ExitCode StatusCommand(const CommandLine& line, Console& console);
ExitCode ListCommand(const CommandLine& line, Console& console);
ExitCode WaitCommand(const CommandLine& line, Console& console);
ExitCode CancelCommand(const CommandLine& line, Console& console);
ExitCode PauseCommand(const CommandLine& line, Console& console);
ExitCode ResumeCommand(const CommandLine& line, Console& console);
ExitCode RetryCommand(const CommandLine& line, Console& console);
ExitCode DeleteCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
