// PreTokenizer: a spec's pre-tokenizer steps.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/split_pattern.h"
#include "engine/text/text_range.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// Immutable after Create, thread-safe.
class PreTokenizer {
 public:
  // A text, as the steps changed it, and its pieces in order; none is empty.
  struct Pieces {
    std::string text;
    std::vector<TextRange> ranges;
  };

  // `steps` are valid. Errors: INVALID_ARGUMENT for an expression that is not accepted.
  static absl::StatusOr<PreTokenizer> Create(const std::vector<PreTokenizerStep>& steps);

  // Splits `text`, valid UTF-8. `at_start`: its first byte is the first of the caller's text.
  // Reuses the memory of `pieces`. Errors: INVALID_ARGUMENT if an expression exceeds its limits.
  absl::Status Run(absl::string_view text, bool at_start, Pieces& pieces) const;

 private:
  struct Step {
    PreTokenizerStep step;
    std::vector<SplitPattern> pattern;  // of kSplit and kSplitBytes: one
  };

  PreTokenizer() = default;
  static absl::Status Split(const Step& step, Pieces& pieces);

  std::vector<Step> steps_;
};

}  // namespace nightshift
