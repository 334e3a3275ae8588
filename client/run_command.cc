#include "client/run_command.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/documents/merged_run.h"
#include "client/documents/request_source.h"
#include "client/fetch.h"
#include "client/input_file.h"
#include "client/job_text.h"
#include "client/model_connection.h"
#include "client/output_file.h"
#include "client/progress.h"
#include "client/session.h"
#include "client/submission.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kStandardOutput[] = "-";

// One `nightshift run`, step by step.
class Run {
 public:
  Run(const CommandLine& line, Console& console) : line_(line), session_(line, console) {}

  ExitCode Execute() {
    absl::Status status = Prepare();
    if (status.ok()) {
      status = Attach();
    }
    if (!status.ok()) {
      return StopEarly(status);
    }
    absl::StatusOr<FetchOutcome> outcome = Fetch();
    if (!outcome.ok() && line_.cancel_on_interrupt && session_.interrupts().requested()) {
      outcome = CancelAndFetchRest();
    }
    if (!outcome.ok()) {
      return StopEarly(outcome.status());
    }
    return Conclude(*outcome);
  }

 private:
  bool to_file() const { return line_.output != kStandardOutput; }
  Console& console() { return session_.console(); }

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(RequestSource source, RequestSource::Open(line_));
    if (to_file() && source.Reads(line_.output)) {
      return absl::InvalidArgumentError(
          absl::StrCat("write ", line_.output, ": is the input, name another output"));
    }
    RETURN_IF_ERROR(ConnectForOutput(session_));
    ASSIGN_OR_RETURN(InputFile input, source.Take(session_));
    input_ = std::move(input);
    if (to_file()) {
      ASSIGN_OR_RETURN(file_, OutputFile::Open(line_.output));
    }
    return absl::OkStatus();
  }

  // Finds the job that an earlier run of this command was following, or submits.
  absl::Status Attach() {
    SubmitOptions submission = SubmitOptionsOf(line_, *input_);
    RETURN_IF_ERROR(FindEarlierJob(submission.request_id));
    if (job_.name().empty()) {
      ASSIGN_OR_RETURN(job_, SubmitAndTell(session_, submission, *input_));
    }
    if (file_ == nullptr) {
      return absl::OkStatus();
    }
    OutputState wanted;
    wanted.request_id = submission.request_id;
    wanted.job_name = job_.name();
    wanted.job_uid = job_.uid();
    wanted.line_options = LineOptionsText(line_.token_ids, v1::RESULT_ORDER_COMMIT);
    ASSIGN_OR_RETURN(last_seq_, file_->Begin(wanted));
    if (last_seq_ > 0) {
      console().Note(absl::StrCat("going on after ", GroupedNumber(last_seq_), " results in ",
                                  line_.output, ".part"));
    }
    return absl::OkStatus();
  }

  // Leaves job_ empty when there is none to go on with. Spares a second upload of the same input.
  absl::Status FindEarlierJob(const std::string& request_id) {
    if (file_ == nullptr || !file_->earlier()) {
      return absl::OkStatus();
    }
    const OutputState& earlier = *file_->earlier();
    if (earlier.request_id != request_id) {
      console().Note(absl::StrCat(line_.output, ".part is of another run (", earlier.job_name,
                                  "), starting it over"));
      return absl::OkStatus();
    }
    absl::StatusOr<v1::Job> job = session_.client().GetJob(earlier.job_name);
    if (job.ok() && job->uid() == earlier.job_uid) {
      job_ = *std::move(job);
      console().Note(absl::StrCat("attached to ", job_.name(), " of an earlier run"));
    }
    return job.ok() || absl::IsNotFound(job.status()) ? absl::OkStatus() : job.status();
  }

  absl::StatusOr<FetchOutcome> Fetch() {
    FetchOptions options;
    options.job = job_;
    options.follow = true;
    options.token_ids = line_.token_ids;
    absl::StatusOr<FetchOutcome> outcome = FetchResults(session_, options, file_.get(), last_seq_);
    if (outcome.ok()) {
      RETURN_IF_ERROR(CheckComplete(job_.name(), outcome->end));
    }
    return outcome;
  }

  absl::StatusOr<FetchOutcome> CancelAndFetchRest() {
    session_.interrupts().Acknowledge();
    console().Note(absl::StrCat("cancelling ", job_.name()));
    // A job that ended meanwhile cannot be cancelled; its results are all there.
    const absl::Status cancelled = session_.client().CancelJob(job_.name()).status();
    if (!cancelled.ok() && !absl::IsFailedPrecondition(cancelled)) {
      return cancelled;
    }
    return Fetch();
  }

  ExitCode Conclude(const FetchOutcome& outcome) {
    if (file_ != nullptr) {
      if (const absl::Status finished = file_->Finish(); !finished.ok()) {
        return StopEarly(finished);
      }
    }
    const absl::StatusOr<v1::Job> latest = session_.client().GetJob(job_.name());
    if (latest.ok()) {
      job_ = *latest;
    }
    job_.set_state(outcome.end.state);
    *job_.mutable_counts() = outcome.end.counts;
    const ExitCode code =
        ReportOutcome(session_, job_, to_file() ? line_.output : "", outcome.first_failure);
    if (line_.json && to_file()) {
      (void)console().Print(JobJson(job_));
    }
    session_.StopPrivateDaemon(true);
    return code;
  }

  // The job, if there is one yet, goes on or can be continued: says how.
  ExitCode StopEarly(const absl::Status& error) {
    const bool was_private = session_.is_private();
    const absl::Status why = session_.Explain(error);
    console().ClearLive();
    ExitCode code = ExitCodeOf(why);
    if (!absl::IsCancelled(why)) {
      code = session_.Fail(why);
    }
    if (was_private && absl::IsCancelled(why)) {
      console().Note("stopping the private daemon; another Ctrl-C does not wait for it");
    }
    // What goes to standard output cannot be resumed, and what has not begun need not be.
    session_.StopPrivateDaemon(!to_file() ||
                               (job_.name().empty() && session_.has_new_private_state()));
    if (!job_.name().empty()) {
      TellHowToGoOn(was_private);
    } else if (absl::IsCancelled(why)) {
      console().Note("interrupted before the job was accepted");
    }
    return code;
  }

  void TellHowToGoOn(bool was_private) {
    if (was_private) {
      console().Note(to_file() ? "stopped; run the same command again to go on" : "stopped");
      return;
    }
    const std::string output =
        to_file() ? absl::StrCat(" -o ", line_.output) : absl::StrCat(" --after ", last_seq_);
    console().Note(absl::StrCat(
        "detached from ", job_.name(), "; attach again: the same command, or 'nightshift results ",
        job_.name(), " --follow", output, "'; end it: 'nightshift cancel ", job_.name(), "'"));
  }

  const CommandLine& line_;
  std::optional<InputFile> input_;
  Session session_;
  std::unique_ptr<OutputFile> file_;
  v1::Job job_;
  int64_t last_seq_ = 0;  // of the last result written
};

}  // namespace

ExitCode RunCommand(const CommandLine& line, Console& console) {
  return line.documents.merge_path.empty() ? Run(line, console).Execute()
                                           : MergedRunCommand(line, console);
}

}  // namespace nightshift
