// TextNormalizer: a spec's normalizer steps.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/split_pattern.h"
#include "engine/text/text_range.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

struct NormalizedText {
  std::string text;
  // What came wholly from a trusted stretch of the source; ascending, disjoint.
  std::vector<TextRange> trusted;
  // False where the steps removed the first byte of the source.
  bool keeps_start = true;
};

// Immutable after Create, thread-safe.
class TextNormalizer {
 public:
  // `steps` are valid. Errors: INVALID_ARGUMENT for an expression that is not accepted.
  static absl::StatusOr<TextNormalizer> Create(const std::vector<NormalizerStep>& steps);

  // True when every text stays as it is.
  bool is_identity() const { return steps_.empty(); }
  // How many bytes of a source one byte of its normalised text stands for at most; 0: no bound.
  size_t most_source_bytes() const { return most_source_bytes_; }

  // Normalises valid UTF-8. `trusted` are stretches of `text`: ascending, disjoint. Text that the
  // steps make of trusted and other text together is not trusted. Errors: INVALID_ARGUMENT if an
  // expression exceeds its matching limits.
  absl::StatusOr<NormalizedText> Run(absl::string_view text,
                                     const std::vector<TextRange>& trusted) const;

 private:
  struct Step {
    NormalizerStep step;
    std::vector<SplitPattern> pattern;  // of kReplacePattern: one
  };
  // Text on its way through the steps. `trust` has one byte for each byte of text, or none at all
  // when the text is trusted as a whole or not at all.
  struct Work {
    std::string text;
    std::string trust;
    bool keeps_start = true;
  };

  TextNormalizer() = default;
  static absl::Status Apply(const Step& step, Work& work);

  std::vector<Step> steps_;
  size_t most_source_bytes_ = 1;
};

}  // namespace nightshift
