// AddedTokenMatcher: finds added tokens in text before anything else is split, as Hugging Face's
// AddedVocabulary does.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/string_view.h"

#include "engine/text/text_range.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// A stretch of text: one added token, or ordinary text (token -1).
struct AddedTokenPiece {
  TextRange range;
  int32_t token = -1;
};

// Immutable; `added_tokens` must outlive it.
class AddedTokenMatcher {
 public:
  // `normalizes`: the text is brought to NFC after the tokens that are not `normalized` are cut
  // out.
  AddedTokenMatcher(const std::vector<AddedToken>& added_tokens, bool normalizes);

  // Cuts valid UTF-8 into pieces that cover it, without those spaces that lstrip and rstrip tokens
  // swallow. The leftmost match counts, at one place the longest. Special tokens are found only
  // inside one of `trusted`.
  std::vector<AddedTokenPiece> Cut(absl::string_view text,
                                   const std::vector<TextRange>& trusted) const;

 private:
  // The tokens that begin with one byte: [first, last) of a sorted list.
  struct Bucket {
    size_t first = 0;
    size_t last = 0;
  };
  // One of Hugging Face's two passes.
  struct Pass {
    std::vector<const AddedToken*> sorted;
    std::array<Bucket, 256> by_first_byte;
  };

  static Pass MakePass(const std::vector<AddedToken>& added_tokens, bool normalized);
  void CutOnce(const Pass& pass, absl::string_view text, TextRange range,
               const std::vector<TextRange>& trusted, std::vector<AddedTokenPiece>& pieces) const;
  const AddedToken* LongestAt(const Pass& pass, absl::string_view text, size_t offset, size_t end,
                              const std::vector<TextRange>& trusted) const;

  Pass raw_;
  Pass normalized_;
  bool normalizes_;
};

}  // namespace nightshift
