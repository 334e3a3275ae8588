#include "client/evaluate_command.h"

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "client/evaluation_data.h"
#include "client/evaluation_measure.h"
#include "client/evaluation_text.h"
#include "client/fetch.h"
#include "client/input_file.h"
#include "client/model_connection.h"
#include "client/progress_display.h"
#include "client/result_spool.h"
#include "client/session.h"
#include "client/submission.h"
#include "client/unnamed_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxDataBytes = int64_t{256} << 20;
// Of each token's distribution, to compare two models; the most that a row may ask for.
constexpr int32_t kComparedTokens = 20;

// Which model computes in which way.
struct Configuration {
  std::string option;  // of the command line that names it
  std::string model;
  v1::ComputeTypeChoice compute_type = v1::COMPUTE_TYPE_CHOICE_UNSPECIFIED;
  v1::CompressionChoice kv_type = v1::COMPRESSION_CHOICE_UNSPECIFIED;
  std::optional<double> sparse_attention = {};
};

class Evaluation {
 public:
  Evaluation(const CommandLine& line, Console& console) : line_(line), console_(console) {}

  ExitCode Execute() {
    absl::Status status = Prepare();
    if (!status.ok()) {
      return Fail(status);
    }
    if (!line_.against.empty()) {
      absl::StatusOr<ResultSpool> spool = ResultSpool::Create();
      if (!spool.ok()) {
        return Fail(spool.status());
      }
      spool_ = *std::move(spool);
      report_.reference.emplace();
      const ExitCode code = Score({.option = "--against",
                                   .model = line_.against,
                                   .compute_type = line_.against_compute_type,
                                   .kv_type = line_.against_kv_type,
                                   .sparse_attention = line_.against_sparse_attention},
                                  *report_.reference);
      if (code != ExitCode::kOk) {
        return code;
      }
    }
    Configuration model = {.option = "MODEL",
                           .model = line_.model,
                           .compute_type = line_.spec.compute_type(),
                           .kv_type = line_.spec.compression().kv()};
    if (line_.spec.has_sparse_attention()) {
      model.sparse_attention = line_.spec.sparse_attention();
    }
    const ExitCode code = Score(model, report_.model);
    return code == ExitCode::kOk ? Conclude() : code;
  }

 private:
  ExitCode Fail(const absl::Status& error) {
    console_.Error(error, "");
    return ExitCodeOf(error);
  }

  absl::Status Prepare() {
    report_.task = line_.task;
    report_.data = line_.input;
    ASSIGN_OR_RETURN(const InputFile data, InputFile::Open(line_.input));
    if (data.size_bytes() > kMaxDataBytes) {
      return absl::InvalidArgumentError(absl::StrCat("read ", data.name(), ": it has ",
                                                     data.size_bytes(), " bytes, at most ",
                                                     kMaxDataBytes, "; cut it in parts"));
    }
    std::string content;
    while (static_cast<int64_t>(content.size()) < data.size_bytes()) {
      ASSIGN_OR_RETURN(const std::string part,
                       data.ReadAt(static_cast<int64_t>(content.size()), data.size_bytes()));
      if (part.empty()) {
        break;
      }
      content += part;
    }
    ASSIGN_OR_RETURN(const std::vector<std::string> documents,
                     ReadDocuments(line_.input, content, line_.task));
    for (size_t i = 0; i < documents.size(); ++i) {
      RETURN_IF_ERROR(AddItems(documents[i], i + 1));
    }
    if (items_.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("read ", line_.input, ": no document has two words"));
    }
    return WriteRows();
  }

  absl::Status AddItems(const std::string& document, size_t number) {
    if (line_.task == EvaluationTask::kPerplexity) {
      std::vector<EvaluationItem> items = PerplexityItems(document, line_.windows);
      items_.insert(items_.end(), std::make_move_iterator(items.begin()),
                    std::make_move_iterator(items.end()));
      return absl::OkStatus();
    }
    absl::StatusOr<EvaluationItem> item = NextWordItem(document);
    if (!item.ok()) {
      return absl::InvalidArgumentError(
          absl::StrCat("read ", line_.input, ": document ", number, " ", item.status().message()));
    }
    items_.push_back(*std::move(item));
    return absl::OkStatus();
  }

  absl::Status WriteRows() {
    const bool compares = !line_.against.empty();
    ASSIGN_OR_RETURN(FileDescriptor file, OpenUnnamedFile());
    const std::string name = absl::StrCat("rows of ", line_.input);
    std::string rows;
    constexpr size_t kWriteBytes = 1 << 20;
    for (size_t i = 0; i < items_.size(); ++i) {
      absl::StatusOr<std::string> row = EvaluationRow(items_[i], compares ? kComparedTokens : 1);
      if (!row.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("read ", line_.input, ": the text of row ",
                                                       i + 1, " ", row.status().message()));
      }
      rows += *row;
      if (rows.size() >= kWriteBytes || i + 1 == items_.size()) {
        RETURN_IF_ERROR(WriteAll(file.get(), std::exchange(rows, {}), name));
      }
    }
    report_.rows = static_cast<int64_t>(items_.size());
    ASSIGN_OR_RETURN(InputFile input, InputFile::Of(std::move(file), name));
    rows_ = std::move(input);
    return absl::OkStatus();
  }

  // All rows with one model.
  ExitCode Score(const Configuration& configuration, EvaluatedModel& target) {
    CommandLine line = line_;
    line.model = configuration.model;
    line.spec.set_compute_type(configuration.compute_type);
    line.spec.clear_compression();
    if (configuration.kv_type != v1::COMPRESSION_CHOICE_UNSPECIFIED) {
      line.spec.mutable_compression()->set_kv(configuration.kv_type);
    }
    line.spec.clear_sparse_attention();
    if (configuration.sparse_attention) {
      line.spec.set_sparse_attention(*configuration.sparse_attention);
    }
    line.spec.mutable_sampling()->set_max_output_tokens(0);  // for whoever plans the job
    (*line.spec.mutable_labels())["evaluate"] =
        line.task == EvaluationTask::kNextWord ? "next-word" : "perplexity";
    Session session(line, console_);
    v1::Job job;
    const absl::Status status = ScoreIn(session, line, configuration, job, target);
    const absl::Status why = session.Explain(status);
    console_.ClearLive();
    ExitCode code = ExitCode::kOk;
    if (absl::IsCancelled(why)) {
      code = ExitCode::kInterrupted;
    } else if (!why.ok()) {
      code = session.Fail(why);
    }
    if (!why.ok() && !job.name().empty() && !session.is_private()) {
      console_.Note(
          absl::StrCat("detached from ", job.name(), "; the same command goes on with it"));
    }
    session.StopPrivateDaemon(/*remove_state=*/true);
    return code;
  }

  absl::Status ScoreIn(Session& session, CommandLine& line, const Configuration& configuration,
                       v1::Job& job, EvaluatedModel& target) {
    RETURN_IF_ERROR(ConnectToModel(session, {.option = configuration.option,
                                             .model = configuration.model,
                                             .is_private = line.private_daemon,
                                             .state_directory = {}}));
    // A pack that was made anew under the same name is another model.
    ASSIGN_OR_RETURN(const std::vector<v1::Model> models, session.client().ListModels());
    for (const v1::Model& model : models) {
      if (model.name() == ModelName(configuration.model)) {
        line.run_key = absl::StrCat(line_.run_key, " ", model.digest());
      }
    }
    ASSIGN_OR_RETURN(job, SubmitAndTell(session, SubmitOptionsOf(line, *rows_), *rows_));
    target.model = job.spec().model();
    target.job = job.name();
    ProgressDisplay display(session, job.name());
    ResultListener listener;
    listener.on_batch = [&](const v1::ResultBatch& batch) -> absl::Status {
      session.TroubleIsOver();
      for (const v1::Result& result : batch.results()) {
        RETURN_IF_ERROR(Take(result, target));
      }
      return absl::OkStatus();
    };
    listener.on_idle = [&] { display.Tick(); };
    const ResultStreamOptions options = {
        .name = job.name(), .after_seq = 0, .follow = true, .order = v1::RESULT_ORDER_INPUT};
    ASSIGN_OR_RETURN(const ResultStreamEnd end, session.client().StreamResults(options, listener));
    if (end.state != v1::JOB_STATE_SUCCEEDED) {
      return absl::AbortedError(absl::StrCat("evaluate ", configuration.model, ": ", job.name(),
                                             " did not run to its end; 'nightshift status ",
                                             job.name(), "' tells why"));
    }
    return CheckComplete(job.name(), end);
  }

  // Of the reference to the spool; of the model beside what lies there.
  absl::Status Take(const v1::Result& result, EvaluatedModel& target) {
    const bool is_reference = &target != &report_.model;
    if (is_reference) {
      return spool_->Append(result);
    }
    std::optional<v1::Result> reference;
    if (spool_.has_value()) {
      ASSIGN_OR_RETURN(reference, spool_->Next());
    }
    const bool failed = NoteFailure(result) || (reference.has_value() && NoteFailure(*reference));
    if (failed) {
      ++report_.failed_rows;
      return absl::OkStatus();
    }
    if (result.index() < 0 || result.index() >= report_.rows ||
        (reference.has_value() && reference->index() != result.index())) {
      return absl::InternalError(
          absl::StrCat("read results: row ", result.index(), " comes out of its order"));
    }
    const EvaluationItem& item = items_[static_cast<size_t>(result.index())];
    RETURN_IF_ERROR(TakeScore(item, result.completion(), report_.model));
    if (reference.has_value()) {
      RETURN_IF_ERROR(TakeScore(item, reference->completion(), *report_.reference));
      AddDivergence(reference->completion().choice_scores(0), result.completion().choice_scores(0),
                    report_.divergence);
    }
    return absl::OkStatus();
  }

  bool NoteFailure(const v1::Result& result) {
    if (result.has_error() && first_failure_.empty()) {
      first_failure_ = absl::StrCat("row ", result.index() + 1, ": ", result.error().message());
    }
    return result.has_error();
  }

  static absl::Status TakeScore(const EvaluationItem& item, const v1::Completion& completion,
                                EvaluatedModel& target) {
    if (completion.choice_scores_size() != 1) {
      return absl::InternalError(
          "read results: a row has no score; is the daemon of the same "
          "version? 'nightshift server info' says");
    }
    target.model_digest = completion.model_digest();
    target.numeric_mode = completion.numeric_mode();
    AddScore(item, completion.choice_scores(0), target.measure);
    return absl::OkStatus();
  }

  ExitCode Conclude() {
    if (report_.failed_rows > 0) {
      console_.Note(absl::StrCat(report_.failed_rows, " of ", report_.rows,
                                 " rows failed, the first: ", first_failure_,
                                 "; a smaller --window makes rows shorter"));
    }
    if (report_.failed_rows < report_.rows) {
      const absl::Status printed =
          console_.Print(line_.json ? EvaluationJson(report_) : EvaluationText(report_));
      if (!printed.ok()) {
        return Fail(printed);
      }
    }
    return report_.failed_rows > 0 ? ExitCode::kFailedRequests : ExitCode::kOk;
  }

  const CommandLine& line_;
  Console& console_;
  std::vector<EvaluationItem> items_;
  std::optional<InputFile> rows_;
  std::optional<ResultSpool> spool_;  // of the reference
  EvaluationReport report_;
  std::string first_failure_;
};

}  // namespace

ExitCode EvaluateCommand(const CommandLine& line, Console& console) {
  return Evaluation(line, console).Execute();
}

}  // namespace nightshift
