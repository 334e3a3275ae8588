// RequestRows: documents to rows of a job.
//
// A row has the document's id; a part of a split one has ID#2/3. What became of the document is in
// the row's metadata, which its result repeats: {"truncated": {...}}, {"part": {...}},
// {"merged_parts": 3}. A document of which nothing can be made is a row with its error.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "client/documents/document.h"
#include "client/documents/prompt_template.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

struct RequestRowOptions {
  v1::JobSpec spec;  // of the job: its model and options count when prompts are measured
  v1::TooLong too_long = v1::TOO_LONG_ERROR;
  int64_t max_prompt_tokens = 0;  // 0: what the model's context allows
  int64_t overlap_tokens = 0;
};

// Asks the daemon, which has the tokenizer.
using AskForCut =
    std::function<absl::StatusOr<v1::CutDocumentResponse>(const v1::CutDocumentRequest&)>;

struct RowCounts {
  int64_t documents = 0;
  int64_t requests = 0;
  int64_t truncated = 0;
  int64_t split = 0;
  int64_t failed = 0;
};

// `prompt_template` must outlive it.
class RequestRows {
 public:
  RequestRows(const PromptTemplate& prompt_template, RequestRowOptions options, AskForCut ask)
      : template_(prompt_template), options_(std::move(options)), ask_(std::move(ask)) {}

  // The document's rows as lines of JSON; counts them. Without a wish about what is too long nobody
  // is asked: the daemon refuses such rows when it checks them.
  // Errors: INVALID_ARGUMENT when the template does not fit documents of this kind; those of `ask`
  // that are not about the document.
  absl::StatusOr<std::string> RowsOf(const Document& document);

  const RowCounts& counts() const { return counts_; }
  // The last error that became a row; nothing before.
  const std::optional<DocumentError>& last_error() const { return last_error_; }

 private:
  std::string ErrorRow(const Document& document, DocumentError error);
  absl::StatusOr<std::string> FittedRows(const Document& document, const RenderedPrompt& prompt);
  absl::StatusOr<v1::CutDocumentRequest> CutRequest(const RenderedPrompt& prompt) const;
  std::string CutRows(const Document& document, const RenderedPrompt& prompt,
                      const v1::CutDocumentResponse& cut);

  const PromptTemplate& template_;
  const RequestRowOptions options_;
  const AskForCut ask_;
  RowCounts counts_;
  std::optional<DocumentError> last_error_;
};

// Which part of which document a result is of, by its metadata.
struct PartOfDocument {
  std::string document;
  int64_t number = 0;  // from 1
  int64_t of = 0;
  int64_t first_parts = 0;  // as Document::first_parts
};
std::optional<PartOfDocument> PartOf(const v1::Result& result);

}  // namespace nightshift
