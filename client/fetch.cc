#include "client/fetch.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

#include "client/job_text.h"
#include "client/progress.h"
#include "client/progress_display.h"
#include "client/result_error.h"
#include "client/result_writer.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

std::string FailureText(const v1::Result& result) {
  const ResultError error = ResultErrorOf(result.error());
  const std::string where = !result.custom_id().empty() ? result.custom_id()
                            : result.line() > 0         ? absl::StrCat("line ", result.line())
                                                : absl::StrCat("request ", result.index());
  return absl::StrCat(where, ": ", error.code, ": ", error.message);
}

}  // namespace

absl::StatusOr<FetchOutcome> FetchResults(Session& session, const FetchOptions& options,
                                          OutputFile* file, int64_t& last_seq) {
  FetchOutcome outcome;
  ResultLineOptions line_options = ResultLineOptionsOf(options.job);
  line_options.include_token_ids = options.token_ids;
  ProgressDisplay display(session, options.job.name());
  ResultListener listener;
  listener.on_batch = [&](const v1::ResultBatch& batch) -> absl::Status {
    session.TroubleIsOver();
    std::string lines;
    for (const v1::Result& result : batch.results()) {
      lines += ResultLine(result, line_options);
      if (result.has_error() && outcome.first_failure.empty()) {
        outcome.first_failure = FailureText(result);
      }
    }
    const int64_t batch_seq =
        PositionOf(batch.results(batch.results_size() - 1), options.order);
    RETURN_IF_ERROR(file == nullptr ? session.console().Print(lines)
                                    : file->Append(lines, batch_seq));
    last_seq = batch_seq;
    return absl::OkStatus();
  };
  listener.on_idle = [&] {
    if (options.follow) {
      display.Tick();
    }
  };
  const absl::StatusOr<ResultStreamEnd> end =
      session.client().StreamResults({.name = options.job.name(),
                                      .after_seq = last_seq,
                                      .follow = options.follow,
                                      .order = options.order},
                                     listener);
  session.console().ClearLive();
  if (file != nullptr) {
    RETURN_IF_ERROR(file->Checkpoint());
  }
  RETURN_IF_ERROR(end.status());
  outcome.end = *end;
  return outcome;
}

std::string LineOptionsText(bool token_ids, v1::ResultOrder order) {
  return absl::StrCat(token_ids ? "token_ids" : "",
                      order == v1::RESULT_ORDER_INPUT ? " input_order" : "");
}

absl::Status CheckComplete(const std::string& job, const ResultStreamEnd& end) {
  if (end.job_ended && end.last_seq < end.counts.total()) {
    return absl::InternalError(absl::StrCat("read results of ", job, ": it ended with ",
                                            end.last_seq, " results for ", end.counts.total(),
                                            " requests"));
  }
  return absl::OkStatus();
}

ExitCode ReportOutcome(Session& session, const v1::Job& job, const std::string& output,
                       const std::string& first_failure) {
  Console& console = session.console();
  const std::string where = output.empty() ? "" : absl::StrCat(", results in ", output);
  console.Note(
      absl::StrCat(job.name(), " ", StateText(job.state()), ": ", OutcomeText(job), where));
  if (job.counts().failed() > 0 && !first_failure.empty()) {
    console.Note(absl::StrCat("failed requests have an error line in the results; the first: ",
                              first_failure));
  }
  if (job.has_error()) {
    console.Error(absl::Status(static_cast<absl::StatusCode>(job.error().code()),
                               absl::StrCat(job.name(), ": ", job.error().message())),
                  "");
  }
  return ExitCodeOf(job.state(), job.counts());
}

}  // namespace nightshift
