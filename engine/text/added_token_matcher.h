// AddedTokenMatcher: finds added tokens in text before anything is split, as Hugging Face's
// AddedVocabulary does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "engine/text/text_range.h"

namespace nightshift {

// A stretch of text: one added token, or ordinary text (token -1).
struct AddedTokenPiece {
  TextRange range;
  int32_t token = -1;
};

// Finds the tokens of one of Hugging Face's two passes. Immutable.
class AddedTokenMatcher {
 public:
  struct Pattern {
    std::string text;  // not empty
    int32_t token = -1;
    bool special = false;
    bool lstrip = false;
    bool rstrip = false;
    bool single_word = false;
  };

  // Of patterns with the same text the first counts.
  explicit AddedTokenMatcher(std::vector<Pattern> patterns);

  bool empty() const { return patterns_.empty(); }
  bool has_special() const { return has_special_; }

  // Cuts valid UTF-8 into pieces that cover it, without those spaces that lstrip and rstrip tokens
  // swallow. The leftmost match counts, at one place the longest. Special tokens are found only
  // inside one of `trusted`: ascending, disjoint.
  std::vector<AddedTokenPiece> Cut(absl::string_view text,
                                   const std::vector<TextRange>& trusted) const;

 private:
  // The patterns that begin with one byte: [first, last) of the sorted list.
  struct Bucket {
    size_t first = 0;
    size_t last = 0;
  };

  const Pattern* LongestAt(absl::string_view text, size_t offset,
                           const std::vector<TextRange>& trusted) const;

  std::vector<Pattern> patterns_;  // sorted by text
  std::array<Bucket, 256> by_first_byte_;
  bool has_special_ = false;
};

}  // namespace nightshift
