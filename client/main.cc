// `nightshift`: the command line of the job server.
#include <cstdlib>
#include <string>
#include <vector>

#include <unistd.h>

#include "client/command_line.h"
#include "client/complete_command.h"
#include "client/console.h"
#include "client/daemon_binary.h"
#include "client/evaluate_command.h"
#include "client/job_commands.h"
#include "client/policy_commands.h"
#include "client/results_command.h"
#include "client/run_command.h"
#include "client/server_commands.h"
#include "kernels/base/file_descriptor.h"

namespace nightshift {
namespace {

bool IsSet(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0';
}

ConsoleOptions ConsoleOptionsOf(const CommandLine& line) {
  const char* term = std::getenv("TERM");
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  const bool is_dumb = term == nullptr || std::string(term) == "dumb";
  ConsoleOptions options;
  options.json = line.json;
  options.quiet = line.quiet;
  options.live = is_terminal && !is_dumb;
  options.color = options.live && !line.no_color && !IsSet("NO_COLOR");
  return options;
}

ExitCode ExecuteTool(const CommandLine& line, Console& console) {
  const absl::Status error = ExecuteDaemonTool(line.tool_arguments);
  console.Error(error, "");
  return ExitCode::kOther;
}

ExitCode Execute(const CommandLine& line, Console& console) {
  switch (line.command) {
    case Command::kRun:
      return RunCommand(line, console);
    case Command::kEvaluate:
      return EvaluateCommand(line, console);
    case Command::kSubmit:
      return SubmitCommand(line, console);
    case Command::kStatus:
      return StatusCommand(line, console);
    case Command::kList:
      return ListCommand(line, console);
    case Command::kWait:
      return WaitCommand(line, console);
    case Command::kResults:
      return ResultsCommand(line, console);
    case Command::kCancel:
      return CancelCommand(line, console);
    case Command::kPause:
      return PauseCommand(line, console);
    case Command::kResume:
      return ResumeCommand(line, console);
    case Command::kRetry:
      return RetryCommand(line, console);
    case Command::kDelete:
      return DeleteCommand(line, console);
    case Command::kModels:
      return ModelsCommand(line, console);
    case Command::kHealth:
      return HealthCommand(line, console);
    case Command::kPolicyShow:
      return PolicyShowCommand(line, console);
    case Command::kPolicyExplain:
      return PolicyExplainCommand(line, console);
    case Command::kServerInfo:
      return ServerInfoCommand(line, console);
    case Command::kServerTimeline:
      return ServerTimelineCommand(line, console);
    case Command::kServerDrain:
      return ServerDrainCommand(line, console);
    case Command::kServerBackup:
      return ServerBackupCommand(line, console);
    case Command::kComplete:
      return CompleteCommand(line, console);
    case Command::kDaemonTool:
      return ExecuteTool(line, console);
  }
  return ExitCode::kOther;
}

int Main(const std::vector<std::string>& arguments) {
  const ParsedCommandLine parsed = ParseCommandLine(arguments);
  if (!parsed.command_line) {
    (void)WriteAll(STDOUT_FILENO, parsed.output, "standard output");
    if (!parsed.error.empty()) {
      (void)WriteAll(STDERR_FILENO, parsed.error + "\n", "standard error");
    }
    return parsed.exit_code;
  }
  Console console(ConsoleOptionsOf(*parsed.command_line));
  return static_cast<int>(Execute(*parsed.command_line, console));
}

}  // namespace
}  // namespace nightshift

int main(int argc, char** argv) {
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);  // errors come as statuses, said once
  return nightshift::Main(std::vector<std::string>(argv + 1, argv + argc));
}
