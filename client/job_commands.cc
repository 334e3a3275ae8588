#include "client/job_commands.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/documents/request_source.h"
#include "client/fetch.h"
#include "client/job_text.h"
#include "client/progress.h"
#include "client/progress_display.h"
#include "client/session.h"
#include "client/submission.h"
#include "client/uuid.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// A display wants the job once a second; without one a long poll is cheaper.
constexpr absl::Duration kLivePoll = absl::Seconds(1);
constexpr absl::Duration kLongPoll = absl::Seconds(30);

// The job once it has ended.
absl::StatusOr<v1::Job> WaitUntilEnded(Session& session, const std::string& name) {
  const ConsoleOptions& options = session.console().options();
  ProgressDisplay display(session, name);
  while (true) {
    ASSIGN_OR_RETURN(const v1::Job job,
                     session.client().WaitJob(name, options.live ? kLivePoll : kLongPoll));
    session.TroubleIsOver();
    if (HasEnded(job.state())) {
      session.console().ClearLive();
      return job;
    }
    if (!options.quiet) {
      display.Show(job);
    }
    if (!session.KeepWaiting()) {
      return session.WhyStopped();
    }
  }
}

absl::StatusOr<ExitCode> WaitAndReport(Session& session, const std::string& name) {
  const absl::StatusOr<v1::Job> job = WaitUntilEnded(session, name);
  if (!job.ok()) {
    const absl::Status why = session.Explain(job.status());
    if (absl::IsCancelled(why)) {
      session.console().Note(absl::StrCat("no longer waiting; ", name, " goes on"));
      return ExitCode::kInterrupted;
    }
    return why;
  }
  if (session.line().json) {
    RETURN_IF_ERROR(session.console().Print(JobJson(*job)));
  }
  return ReportOutcome(session, *job, "", "");
}

ExitCode ReportValidation(Session& session, const v1::Job& job, const std::string& input) {
  const v1::JobCounts& counts = job.counts();
  if (session.line().json) {
    (void)session.console().Print(JobJson(job));
  }
  session.console().Note(absl::StrCat(input, ": ", GroupedNumber(counts.total()), " requests, ",
                                      GroupedNumber(counts.failed()), " of them invalid"));
  return counts.failed() > 0 ? ExitCode::kInputInvalid : ExitCode::kOk;
}

absl::StatusOr<ExitCode> Submit(Session& session) {
  const CommandLine& line = session.line();
  ASSIGN_OR_RETURN(RequestSource source, RequestSource::Open(line));
  RETURN_IF_ERROR(session.Connect(kLongPatience));
  ASSIGN_OR_RETURN(const InputFile input, source.Take(session));
  ASSIGN_OR_RETURN(const v1::Job job, SubmitAndTell(session, SubmitOptionsOf(line, input), input));
  if (line.validate_only) {
    return ReportValidation(session, job, input.name());
  }
  if (line.wait) {
    return WaitAndReport(session, job.name());
  }
  RETURN_IF_ERROR(session.console().Print(line.json ? JobJson(job) : job.name() + "\n"));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Status(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::Job job, session.client().GetJob(session.line().job));
  RETURN_IF_ERROR(
      session.console().Print(session.line().json ? JobJson(job) : JobText(job, absl::Now())));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> List(Session& session) {
  const CommandLine& line = session.line();
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  v1::ListJobsRequest filter;
  filter.set_state(line.state);
  filter.set_label(line.label);
  ASSIGN_OR_RETURN(const auto jobs, session.client().ListJobs(filter, line.limit));
  if (!line.json) {
    RETURN_IF_ERROR(session.console().Print(JobsTable(jobs, absl::Now())));
    return ExitCode::kOk;
  }
  for (const v1::Job& job : jobs) {
    RETURN_IF_ERROR(session.console().Print(JobJson(job)));
  }
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Wait(Session& session) {
  RETURN_IF_ERROR(session.Connect(kLongPatience));
  return WaitAndReport(session, session.line().job);
}

// Says what has become of a job.
absl::Status TellState(Session& session, const v1::Job& job) {
  session.console().Note(absl::StrCat(job.name(), " is ", StateText(job.state()), ", ",
                                      GroupedNumber(DoneOf(job.counts())), "/",
                                      GroupedNumber(job.counts().total()), " done"));
  return session.line().json ? session.console().Print(JobJson(job)) : absl::OkStatus();
}

absl::StatusOr<ExitCode> Change(Session& session,
                                absl::StatusOr<v1::Job> (Client::*change)(const std::string&)) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::Job job, (session.client().*change)(session.line().job));
  RETURN_IF_ERROR(TellState(session, job));
  return ExitCode::kOk;
}

absl::StatusOr<std::vector<std::string>> OpenJobs(Session& session) {
  constexpr int64_t kAll = INT64_MAX;
  std::vector<std::string> names;
  for (const v1::JobState state : {v1::JOB_STATE_QUEUED, v1::JOB_STATE_VALIDATING,
                                   v1::JOB_STATE_RUNNING, v1::JOB_STATE_PAUSED}) {
    v1::ListJobsRequest filter;
    filter.set_state(state);
    filter.set_label(session.line().label);
    filter.set_view(v1::JOB_VIEW_BASIC);
    ASSIGN_OR_RETURN(const auto jobs, session.client().ListJobs(filter, kAll));
    for (const v1::Job& job : jobs) {
      names.push_back(job.name());
    }
  }
  return names;
}

absl::StatusOr<ExitCode> CancelAll(Session& session) {
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const std::vector<std::string> names, OpenJobs(session));
  const std::string jobs =
      names.size() == 1
          ? names.front()
          : absl::StrCat(GroupedNumber(static_cast<int64_t>(names.size())), " jobs");
  if (!names.empty() && !session.line().yes) {
    ASSIGN_OR_RETURN(const bool agreed,
                     session.console().Confirm(absl::StrCat("cancel ", jobs, "?"), "--yes"));
    if (!agreed) {
      session.console().Note("nothing is cancelled");
      return ExitCode::kOther;
    }
  }
  int64_t num_cancelled = 0;
  for (const std::string& name : names) {
    const absl::StatusOr<v1::Job> job = session.client().CancelJob(name);
    // It may have ended, or been deleted, since it was listed.
    if (absl::IsFailedPrecondition(job.status()) || absl::IsNotFound(job.status())) {
      continue;
    }
    RETURN_IF_ERROR(job.status());
    RETURN_IF_ERROR(TellState(session, *job));
    ++num_cancelled;
  }
  session.console().Note(absl::StrCat("cancelled ", GroupedNumber(num_cancelled), " jobs"));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Cancel(Session& session) {
  return session.line().all ? CancelAll(session) : Change(session, &Client::CancelJob);
}

absl::StatusOr<ExitCode> Pause(Session& session) {
  return Change(session, &Client::PauseJob);
}

absl::StatusOr<ExitCode> Resume(Session& session) {
  return Change(session, &Client::ResumeJob);
}

absl::StatusOr<ExitCode> Retry(Session& session) {
  const CommandLine& line = session.line();
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  ASSIGN_OR_RETURN(const v1::Job old, session.client().GetJob(line.job));
  // The same job tried again under the same key is the same retry.
  const std::string request_id = RequestIdOf(absl::StrCat("retry ", old.uid()), "", line.run_key);
  ASSIGN_OR_RETURN(const v1::Job job, session.client().RetryFailed(line.job, request_id));
  session.console().Note(absl::StrCat(job.attached() ? "attached to " : "", job.name(),
                                      job.attached() ? ", which retries " : " retries ",
                                      GroupedNumber(job.counts().total()), " requests of ",
                                      line.job));
  RETURN_IF_ERROR(session.console().Print(line.json ? JobJson(job) : job.name() + "\n"));
  return ExitCode::kOk;
}

absl::StatusOr<ExitCode> Delete(Session& session) {
  const CommandLine& line = session.line();
  RETURN_IF_ERROR(session.Connect(kShortPatience));
  RETURN_IF_ERROR(session.client().DeleteJob(line.job, line.force, line.allow_missing));
  if (line.json) {
    RETURN_IF_ERROR(session.console().Print(DeletedJson(line.job)));
  }
  session.console().Note(absl::StrCat(
      line.job, line.allow_missing ? " is gone: it was deleted now, or was not there"
                                   : " is deleted, with its input and results"));
  return ExitCode::kOk;
}

ExitCode Execute(const CommandLine& line, Console& console,
                 absl::StatusOr<ExitCode> (*command)(Session&)) {
  Session session(line, console);
  const absl::StatusOr<ExitCode> code = command(session);
  return code.ok() ? *code : session.Fail(code.status());
}

}  // namespace

ExitCode SubmitCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Submit);
}
ExitCode StatusCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Status);
}
ExitCode ListCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, List);
}
ExitCode WaitCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Wait);
}
ExitCode CancelCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Cancel);
}
ExitCode PauseCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Pause);
}
ExitCode ResumeCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Resume);
}
ExitCode RetryCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Retry);
}
ExitCode DeleteCommand(const CommandLine& line, Console& console) {
  return Execute(line, console, Delete);
}

}  // namespace nightshift
