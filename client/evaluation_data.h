// What `nightshift evaluate` asks about a text: rows with one choice each, which is scored. Pure.
//
// Words are what white space separates. A text is cut at words, not at tokens: the client has no
// tokenizer, and two models are asked the same whatever theirs are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

enum class EvaluationTask {
  kNextWord = 1,  // is the last word of each document what the model says by its best tokens?
  kPerplexity,    // how likely is each token behind those before it?
};

// What one row asks: how likely `text` is behind `prompt`.
struct EvaluationItem {
  std::string prompt;
  std::string text;  // with the white space before its first word
  int64_t words = 0;
};

struct EvaluationWindows {
  int64_t window_words = 512;  // of a row: what is scored and what comes before it
  int64_t stride_words = 256;  // of those, scored; 1 to window_words - 1
};

// The documents of a file. One that is called *.jsonl holds a JSON object with "text" a line.
// Others hold a document a line for kNextWord (as LAMBADA has them), and are one document for
// kPerplexity. Blank lines are skipped.
// Errors: INVALID_ARGUMENT with the line, and for a file without documents.
absl::StatusOr<std::vector<std::string>> ReadDocuments(const std::string& name,
                                                       absl::string_view content,
                                                       EvaluationTask task);

// The last word behind the words before it. INVALID_ARGUMENT for a document of fewer than two
// words.
absl::StatusOr<EvaluationItem> NextWordItem(absl::string_view document);

// Each word of the document but the first is scored once, behind as many of the words before it as
// the window has room for. Windows are cut at single spaces where there are some, so that no
// tokenizer melts the end of a line into what comes before it.
std::vector<EvaluationItem> PerplexityItems(absl::string_view document,
                                            const EvaluationWindows& windows);

// The row as a line of JSON, asking for so many alternatives of each token.
// Errors: INVALID_ARGUMENT for text that is not UTF-8.
absl::StatusOr<std::string> EvaluationRow(const EvaluationItem& item, int32_t top_logprobs);

}  // namespace nightshift
