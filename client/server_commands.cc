#include "client/server_commands.h"

#include <cstdint>
#include <filesystem>
#include <string>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/await.h"
#include "client/job_text.h"
#include "client/progress.h"
#include "client/rpc_error.h"
#include "client/session.h"
#include "kernels/base/new_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kService[] = "nightshift.v1.JobService";
constexpr absl::Duration kHealthPoll = absl::Milliseconds(200);
constexpr absl::Duration kDefaultHealthWait = absl::Seconds(60);

absl::Status Models(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const auto models, session.client().ListModels());
  if (!session.line().json) {
    return session.console().Print(ModelsTable(models));
  }
  for (const v1::Model& model : models) {
    RETURN_IF_ERROR(session.console().Print(ModelJson(model)));
  }
  return absl::OkStatus();
}

absl::Status ServerInfo(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::ServerInfo info, session.client().GetServerInfo());
  const std::string& address = session.client().address();
  return session.console().Print(session.line().json ? ServerInfoJson(info, address)
                                                     : ServerInfoText(info, address, absl::Now()));
}

absl::Status ServerTimeline(Session& session) {
  const std::string& path = session.line().output;
  const bool to_file = path != "-";
  if (to_file) {
    RETURN_IF_ERROR(CheckNoFile(path));
  }
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const std::string trace, session.client().DumpTimeline());
  if (!to_file) {
    return session.console().Print(trace);
  }
  RETURN_IF_ERROR(WriteNewFile(path, trace));
  if (session.line().json) {
    RETURN_IF_ERROR(session.console().Print(FileJson(path, static_cast<int64_t>(trace.size()))));
  }
  session.console().Note(absl::StrCat("wrote ", path, ", ",
                                      ByteSize(static_cast<int64_t>(trace.size())),
                                      "; open it in chrome://tracing or ui.perfetto.dev"));
  return absl::OkStatus();
}

absl::Status ServerDrain(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::ServerInfo info, session.client().SetDrain(!session.line().undo));
  if (session.line().json) {
    return session.console().Print(ServerInfoJson(info, session.client().address()));
  }
  session.console().Note(
      info.draining()
          ? "the daemon accepts and runs nothing, also after a restart, until: nightshift server "
            "drain --undo"
          : "the daemon accepts and runs jobs");
  return absl::OkStatus();
}

absl::Status ServerBackup(Session& session) {
  // The daemon may have another working folder.
  std::error_code error;
  std::filesystem::path folder = std::filesystem::absolute(session.line().output, error);
  if (!folder.has_filename()) {
    folder = folder.parent_path();
  }
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::BackupResponse copied, session.client().Backup(folder.string()));
  if (session.line().json) {
    RETURN_IF_ERROR(session.console().Print(BackupJson(folder.string(), copied)));
  }
  session.console().Note(absl::StrCat("wrote ", folder.string(), ": ", GroupedNumber(copied.jobs()),
                                      " jobs, ", ByteSize(copied.bytes()),
                                      "; restore it with nightshiftd --state-dir"));
  return absl::OkStatus();
}

// OK when jobs are accepted.
absl::Status CheckHealthOnce(Session& session) {
  RETURN_IF_ERROR(session.Connect(absl::ZeroDuration()));
  ASSIGN_OR_RETURN(const bool serving, session.client().CheckHealth(kService));
  if (serving) {
    return absl::OkStatus();
  }
  // Who has no token is not told.
  const absl::StatusOr<v1::ServerInfo> info = session.client().GetServerInfo();
  return info.ok() && info->draining()
             ? MakeClientError(absl::StatusCode::kUnavailable, "SERVER_DRAINED",
                               "check health: the daemon is drained: it accepts and runs nothing "
                               "until nightshift server drain --undo")
             : MakeClientError(absl::StatusCode::kUnavailable, "NOT_SERVING",
                               "check health: the daemon does not accept jobs at present");
}

absl::Status Health(Session& session) {
  absl::Status health = CheckHealthOnce(session);
  while (session.line().wait && absl::IsUnavailable(health) &&
         Pause(kHealthPoll, [&] { return session.KeepWaiting(); })) {
    health = CheckHealthOnce(session);
  }
  RETURN_IF_ERROR(health);
  const std::string& address = session.client().address();
  return session.console().Print(session.line().json
                                     ? "{\"serving\":true}\n"
                                     : absl::StrCat("the daemon at ", address, " accepts jobs\n"));
}

}  // namespace

ExitCode ModelsCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, Models);
}

ExitCode ServerInfoCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, ServerInfo);
}

ExitCode ServerTimelineCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, ServerTimeline);
}

ExitCode ServerDrainCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, ServerDrain);
}

ExitCode ServerBackupCommand(const CommandLine& line, Console& console) {
  return RunInSession(line, console, ServerBackup);
}

ExitCode HealthCommand(const CommandLine& line, Console& console) {
  CommandLine limited = line;
  if (line.timeout == absl::InfiniteDuration()) {
    limited.timeout = kDefaultHealthWait;
  }
  return RunInSession(limited, console, Health);
}

}  // namespace nightshift
