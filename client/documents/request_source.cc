#include "client/documents/request_source.h"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

#include "client/documents/document_reader.h"
#include "client/progress.h"
#include "client/submission.h"
#include "client/unnamed_file.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Documents that are named on standard error; all are in the results.
constexpr int64_t kMaxNamed = 20;

std::string CountsText(const RowCounts& counts) {
  std::string text = absl::StrCat(GroupedNumber(counts.documents), " documents, ",
                                  GroupedNumber(counts.requests), " requests");
  for (const auto& [count, what] :
       {std::pair(counts.truncated, "truncated"), std::pair(counts.split, "split"),
        std::pair(counts.failed, "not usable, each with an error result")}) {
    if (count > 0) {
      absl::StrAppend(&text, "; ", GroupedNumber(count), " ", what);
    }
  }
  return text;
}

}  // namespace

RequestRows MakeRequestRows(const CommandLine& line, const PromptTemplate& prompt_template,
                            Session& session) {
  RequestRowOptions options;
  options.spec = line.spec;
  options.spec.set_model(ModelName(line.model));
  options.too_long = line.documents.too_long;
  options.max_prompt_tokens = line.documents.max_prompt_tokens;
  options.overlap_tokens = line.documents.overlap_tokens;
  return RequestRows(prompt_template, std::move(options),
                     [&session](const v1::CutDocumentRequest& request) {
                       return session.client().CutDocument(request);
                     });
}

absl::StatusOr<RequestSource> RequestSource::Open(const CommandLine& line) {
  RequestSource source(line);
  if (line.documents.template_path.empty()) {
    ASSIGN_OR_RETURN(InputFile file, InputFile::Open(line.input));
    source.file_ = std::move(file);
    return source;
  }
  ASSIGN_OR_RETURN(PromptTemplate loaded, PromptTemplate::Load(line.documents.template_path));
  source.template_ = std::move(loaded);
  ASSIGN_OR_RETURN(source.paths_, FindInputs(line.documents.inputs));
  return source;
}

bool RequestSource::Reads(const std::string& path) const {
  if (file_.has_value()) {
    return file_->IsSameFileAs(path);
  }
  return std::any_of(paths_.begin(), paths_.end(), [&](const InputPath& input) {
    std::error_code error;
    return std::filesystem::equivalent(input.path, path, error);
  });
}

absl::StatusOr<InputFile> RequestSource::Take(Session& session) {
  if (!file_.has_value()) {
    return WriteRows(session);
  }
  InputFile file = *std::move(file_);
  file_.reset();
  return file;
}

absl::StatusOr<InputFile> RequestSource::WriteRows(Session& session) {
  DocumentReader reader(paths_, line_->documents.id_field);
  RequestRows rows = MakeRequestRows(*line_, *template_, session);
  const std::string name = "requests of the documents";
  ASSIGN_OR_RETURN(FileDescriptor file, OpenUnnamedFile());
  while (const std::optional<Document> document = reader.Next()) {
    if (!session.KeepWaiting()) {
      return session.WhyStopped();
    }
    const int64_t failed = rows.counts().failed;
    ASSIGN_OR_RETURN(const std::string lines, rows.RowsOf(*document));
    if (rows.counts().failed > failed && failed < kMaxNamed) {
      session.console().Note(rows.last_error()->message);
    }
    RETURN_IF_ERROR(WriteAll(file.get(), lines, name));
  }
  if (rows.counts().documents == 0) {
    return absl::InvalidArgumentError("--input: the files hold no documents");
  }
  session.console().Note(CountsText(rows.counts()));
  return InputFile::Of(std::move(file), name);
}

}  // namespace nightshift
