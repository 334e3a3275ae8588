#include "client/documents/merged_run.h"

#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/documents/json_record.h"
#include "client/documents/merge_levels.h"
#include "client/documents/request_source.h"
#include "client/fetch.h"
#include "client/job_text.h"
#include "client/model_connection.h"
#include "client/output_file.h"
#include "client/progress.h"
#include "client/progress_display.h"
#include "client/result_error.h"
#include "client/result_writer.h"
#include "client/submission.h"
#include "client/unnamed_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

class MergedRun {
 public:
  MergedRun(const CommandLine& line, Console& console) : line_(line), session_(line, console) {}

  ExitCode Execute() {
    const absl::StatusOr<ExitCode> code = Run();
    if (code.ok()) {
      session_.StopPrivateDaemon(/*remove_state=*/true);
      return *code;
    }
    return StopEarly(code.status());
  }

 private:
  bool to_file() const { return line_.output != "-"; }
  Console& console() { return session_.console(); }

  absl::StatusOr<ExitCode> Run() {
    RETURN_IF_ERROR(Prepare());
    ASSIGN_OR_RETURN(InputFile input, source_->Take(session_));
    for (int64_t level = 0;; ++level) {
      RETURN_IF_ERROR(RunLevel(level, input));
      if (jobs_.back().state() != v1::JOB_STATE_SUCCEEDED) {
        return ReportOutcome(session_, jobs_.back(), "", "");
      }
      ASSIGN_OR_RETURN(std::optional<InputFile> next, NextLevel());
      if (!next.has_value()) {
        return Conclude();
      }
      input = *std::move(next);
    }
  }

  absl::Status Prepare() {
    ASSIGN_OR_RETURN(RequestSource source, RequestSource::Open(line_));
    source_ = std::move(source);
    ASSIGN_OR_RETURN(PromptTemplate merge, PromptTemplate::Load(line_.documents.merge_path));
    merge_ = std::move(merge);
    Document sample;
    sample.id = "a document in parts";
    sample.fields = {{kOutputField, ""}, {kIdField, "", /*is_own=*/false}};
    RETURN_IF_ERROR(merge_->Check(sample));
    if (to_file() && source_->Reads(line_.output)) {
      return absl::InvalidArgumentError(
          absl::StrCat("write ", line_.output, ": is an input, name another output"));
    }
    RETURN_IF_ERROR(ConnectForOutput(session_));
    if (to_file()) {
      ASSIGN_OR_RETURN(file_, OutputFile::Open(line_.output));
    }
    return absl::OkStatus();
  }

  // Level 0 is the documents, the others merge.
  absl::Status RunLevel(int64_t level, const InputFile& input) {
    SubmitOptions submission = SubmitOptionsOf(line_, input);
    if (level > 0 && !submission.job_id.empty()) {
      absl::StrAppend(&submission.job_id, "-merge-", level);
    }
    ASSIGN_OR_RETURN(v1::Job job, SubmitAndTell(session_, submission, input));
    jobs_.push_back(std::move(job));
    RETURN_IF_ERROR(levels_.Begin());
    v1::Job& running = jobs_.back();
    ProgressDisplay display(session_, running.name());
    ResultListener listener;
    listener.on_batch = [&](const v1::ResultBatch& batch) -> absl::Status {
      session_.TroubleIsOver();
      for (const v1::Result& result : batch.results()) {
        RETURN_IF_ERROR(levels_.Append(result));
      }
      return absl::OkStatus();
    };
    listener.on_idle = [&] { display.Tick(); };
    ASSIGN_OR_RETURN(const ResultStreamEnd end,
                     session_.client().StreamResults({.name = running.name(),
                                                      .after_seq = 0,
                                                      .follow = true,
                                                      .order = v1::RESULT_ORDER_INPUT},
                                                     listener));
    console().ClearLive();
    running.set_state(end.state);
    *running.mutable_counts() = end.counts;
    return CheckComplete(running.name(), end);
  }

  // The rows that merge what the last level has in parts; nothing when there are none.
  absl::StatusOr<std::optional<InputFile>> NextLevel() {
    RequestRows rows = MakeRequestRows(line_, *merge_, session_);
    ASSIGN_OR_RETURN(FileDescriptor file, OpenUnnamedFile());
    const std::string name = "requests that merge parts";
    RETURN_IF_ERROR(levels_.ForEachSplit([&](const Document& document) -> absl::Status {
      ASSIGN_OR_RETURN(const std::string lines, rows.RowsOf(document));
      return WriteAll(file.get(), lines, name);
    }));
    if (rows.counts().documents == 0) {
      return std::optional<InputFile>();
    }
    console().Note(absl::StrCat("merging ", GroupedNumber(rows.counts().documents),
                                " documents in ", GroupedNumber(rows.counts().requests),
                                " requests"));
    ASSIGN_OR_RETURN(InputFile input, InputFile::Of(std::move(file), name));
    return std::optional<InputFile>(std::move(input));
  }

  absl::StatusOr<ExitCode> Conclude() {
    int64_t written = 0;
    if (file_ != nullptr) {
      OutputState wanted;
      wanted.job_name = jobs_.back().name();
      wanted.job_uid = jobs_.back().uid();
      wanted.line_options = LineOptionsText(line_.token_ids, v1::RESULT_ORDER_INPUT) + " merged";
      ASSIGN_OR_RETURN(written, file_->Begin(wanted));
    }
    ResultLineOptions options = ResultLineOptionsOf(jobs_.front());
    options.include_token_ids = line_.token_ids;
    int64_t failed = 0;
    int64_t count = 0;
    RETURN_IF_ERROR(levels_.ForEachFinal([&](const v1::Result& result) -> absl::Status {
      failed += result.has_error() ? 1 : 0;
      if (++count <= written) {
        return absl::OkStatus();
      }
      const std::string text = ResultLine(result, options);
      return file_ == nullptr ? console().Print(text) : file_->Append(text, count);
    }));
    if (file_ != nullptr) {
      RETURN_IF_ERROR(file_->Finish());
      if (line_.json) {
        RETURN_IF_ERROR(console().Print(JobJson(jobs_.front())));
      }
    }
    console().Note(absl::StrCat(GroupedNumber(count), " documents, ", GroupedNumber(failed),
                                " failed", to_file() ? ", results in " : "",
                                to_file() ? line_.output : ""));
    return failed > 0 ? ExitCode::kFailedRequests : ExitCode::kOk;
  }

  ExitCode StopEarly(const absl::Status& error) {
    const bool was_private = session_.is_private();
    const absl::Status why = session_.Explain(error);
    console().ClearLive();
    const ExitCode code = absl::IsCancelled(why) ? ExitCode::kInterrupted : session_.Fail(why);
    session_.StopPrivateDaemon(!to_file() ||
                               (jobs_.empty() && session_.has_new_private_state()));
    if (!jobs_.empty()) {
      console().Note(was_private
                         ? "stopped; run the same command again to go on"
                         : absl::StrCat("detached from ", jobs_.back().name(),
                                        "; the same command goes on with it; end it: 'nightshift "
                                        "cancel ",
                                        jobs_.back().name(), "'"));
    }
    return code;
  }

  const CommandLine& line_;
  Session session_;
  std::optional<RequestSource> source_;
  std::optional<PromptTemplate> merge_;
  std::unique_ptr<OutputFile> file_;
  MergeLevels levels_;
  std::vector<v1::Job> jobs_;  // one a level
};

}  // namespace

ExitCode MergedRunCommand(const CommandLine& line, Console& console) {
  return MergedRun(line, console).Execute();
}

}  // namespace nightshift
