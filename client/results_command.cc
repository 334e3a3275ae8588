#include "client/results_command.h"

#include <cstdint>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"

#include "client/fetch.h"
#include "client/job_text.h"
#include "client/output_file.h"
#include "client/progress.h"
#include "client/rpc_error.h"
#include "client/session.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Results of a job that exists, into a file; resumes what an earlier `results` or `run` left.
absl::StatusOr<int64_t> BeginOutput(const CommandLine& line, const v1::Job& job, OutputFile& file) {
  OutputState wanted;
  wanted.job_name = job.name();
  wanted.job_uid = job.uid();
  wanted.line_options = LineOptionsText(line.token_ids, line.order);
  wanted.first_after_seq = line.after_seq;
  // Keeps a later `run` able to recognise its own part.
  if (file.earlier() && file.earlier()->job_uid == job.uid()) {
    wanted.request_id = file.earlier()->request_id;
  }
  return file.Begin(wanted);
}

// Says that there are more results to come than were written.
ExitCode Unfinished(Session& session, const v1::Job& job, int64_t last_seq) {
  const CommandLine& line = session.line();
  const bool to_file = line.output != "-";
  const std::string next =
      to_file ? absl::StrCat(" in ", line.output, ".part; the same command goes on there, --follow "
                             "waits for the end, --partial makes ", line.output, " of what there is")
              : absl::StrCat("; go on with --after ", last_seq, ", --follow waits for the end");
  session.console().Error(
      MakeClientError(absl::StatusCode::kUnavailable, "NOT_FINISHED",
                      absl::StrCat(job.name(), " is ", StateText(job.state()), ": ",
                                   GroupedNumber(last_seq), " of ",
                                   GroupedNumber(job.counts().total()), " results", next)),
      "");
  return ExitCode::kUnavailable;
}

// Advances last_seq, also when it ends with an error.
absl::StatusOr<ExitCode> Results(Session& session, int64_t& last_seq) {
  const CommandLine& line = session.line();
  RETURN_IF_ERROR(session.Connect(line.follow ? kLongPatience : kShortPatience));
  ASSIGN_OR_RETURN(v1::Job job, session.client().GetJob(line.job));
  FetchOptions options;
  options.job = job;
  options.follow = line.follow;
  options.token_ids = line.token_ids;
  options.order = line.order;
  std::unique_ptr<OutputFile> file;
  if (line.output != "-") {
    ASSIGN_OR_RETURN(file, OutputFile::Open(line.output));
    ASSIGN_OR_RETURN(last_seq, BeginOutput(line, job, *file));
  }
  ASSIGN_OR_RETURN(const FetchOutcome outcome,
                   FetchResults(session, options, file.get(), last_seq));
  RETURN_IF_ERROR(CheckComplete(job.name(), outcome.end));
  // A file that is there is a whole one, unless the caller has asked for a part.
  const bool is_whole = outcome.end.job_ended || line.partial;
  if (file != nullptr && is_whole) {
    RETURN_IF_ERROR(file->Finish());
  }
  ASSIGN_OR_RETURN(job, session.client().GetJob(line.job));
  if (!is_whole) {
    return Unfinished(session, job, last_seq);
  }
  if (line.json && file != nullptr) {
    RETURN_IF_ERROR(session.console().Print(JobJson(job)));
  }
  if (outcome.end.job_ended) {
    return ReportOutcome(session, job, file == nullptr ? "" : line.output, outcome.first_failure);
  }
  session.console().Note(absl::StrCat(job.name(), " is ", StateText(job.state()), ": ",
                                      GroupedNumber(last_seq), " of ",
                                      GroupedNumber(job.counts().total()), " results",
                                      file == nullptr ? "" : " in " + line.output));
  return ExitCode::kUnavailable;
}

}  // namespace

ExitCode ResultsCommand(const CommandLine& line, Console& console) {
  Session session(line, console);
  int64_t last_seq = line.after_seq;
  const absl::StatusOr<ExitCode> code = Results(session, last_seq);
  if (code.ok()) {
    return *code;
  }
  const absl::Status why = session.Explain(code.status());
  const ExitCode failed = absl::IsCancelled(why) ? ExitCode::kInterrupted : session.Fail(why);
  if (last_seq > line.after_seq) {
    console.Note(line.output == "-" ? absl::StrCat("go on with --after ", last_seq)
                                    : "the same command goes on where this one ended");
  }
  return failed;
}

}  // namespace nightshift
