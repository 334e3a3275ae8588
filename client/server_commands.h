// The commands about the daemon itself.
#pragma once

#include "client/command_line.h"
#include "client/console.h"
#include "client/exit_code.h"

namespace nightshift {

ExitCode ModelsCommand(const CommandLine& line, Console& console);
ExitCode ServerInfoCommand(const CommandLine& line, Console& console);
// Writes the trace to a file that does not exist yet; it appears whole.
ExitCode ServerTimelineCommand(const CommandLine& line, Console& console);
ExitCode ServerDrainCommand(const CommandLine& line, Console& console);
ExitCode ServerBackupCommand(const CommandLine& line, Console& console);
// kOk when the daemon accepts jobs, kUnavailable otherwise.
ExitCode HealthCommand(const CommandLine& line, Console& console);

}  // namespace nightshift
