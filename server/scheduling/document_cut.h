// Where a document is cut so that the request around it fits. Pure but for `count`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// More of one document is nothing that anybody meant.
inline constexpr size_t kMaxDocumentPieces = 1024;

struct CutWishes {
  int64_t max_prompt_tokens = 0;  // of the request around a piece
  bool split = false;             // else one piece: the longest beginning that fits
  int64_t overlap_tokens = 0;     // about so much of a piece begins the next one too
};

struct DocumentPiece {
  size_t offset = 0;  // in the document, bytes, at the start of a character
  size_t length = 0;
  int64_t prompt_tokens = 0;  // of the request around it
};

// Counts the tokens of the request with `piece` in place of its document.
using CountPrompt = std::function<absl::StatusOr<int64_t>(absl::string_view piece)>;

// The pieces of a document, UTF-8, that does not fit as a whole, each counted. Pieces of a split are
// of about equal length and end behind a paragraph, line, sentence or word, whichever of these comes
// first in this list and is in the second half of what fits, else behind a token; the white space at
// the document's end may be in none. `token_ends` are of the document alone.
// Errors: INVALID_ARGUMENT (PROMPT_TOO_LONG) when there is no room for a document, or too many
// pieces would be needed; INVALID_ARGUMENT (FIELD_OUT_OF_RANGE) for an overlap that is half of the
// room or more; those of `count`.
absl::StatusOr<std::vector<DocumentPiece>> CutDocument(absl::string_view document,
                                                       const std::vector<size_t>& token_ends,
                                                       const CutWishes& wishes,
                                                       const CountPrompt& count);

}  // namespace nightshift
