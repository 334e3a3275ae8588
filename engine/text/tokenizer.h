// Tokenizer: text to token ids and back. Immutable and thread-safe after Create.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/text_range.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

class AddedTokenMatcher;
class BytePairMerger;
class SplitPattern;

class Tokenizer {
 public:
  // Errors: INVALID_ARGUMENT naming what in the spec does not fit (pattern, merge, id).
  static absl::StatusOr<std::unique_ptr<Tokenizer>> Create(TokenizerSpec spec);
  ~Tokenizer();

  // Encodes UTF-8 text without adding BOS or EOS. Special tokens are recognised only where they lie
  // wholly inside one of `trusted` (ascending, disjoint); elsewhere their text is ordinary text.
  // Non-special added tokens are recognised everywhere. Bytes without a token are dropped as the
  // original tokenizers do. Errors: INVALID_ARGUMENT for invalid UTF-8 with the byte offset.
  absl::StatusOr<std::vector<int32_t>> Encode(absl::string_view text,
                                              const std::vector<TextRange>& trusted) const;

  // How many tokens a text of so many bytes has at least: tells that a text is too long without
  // encoding it. Bytes that Encode drops (without a token, or stripped beside an added token) count.
  int64_t LeastTokens(int64_t text_bytes) const;

  // The bytes that one token stands for; empty for ids out of range. Special tokens give their
  // text.
  absl::string_view TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  // Whole-sequence decoding; always valid UTF-8 (broken bytes become U+FFFD).
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const;

  const TokenizerSpec& spec() const { return spec_; }

 private:
  explicit Tokenizer(TokenizerSpec spec);
  absl::Status Build();
  absl::Status EncodeOrdinary(absl::string_view text, std::vector<int32_t>& ids) const;

  TokenizerSpec spec_;
  std::vector<bool> special_;  // by id
  int64_t longest_token_bytes_ = 1;
  std::unique_ptr<AddedTokenMatcher> added_tokens_;
  std::vector<SplitPattern> split_patterns_;
  std::unique_ptr<BytePairMerger> merger_;
};

// Collects the bytes of generated tokens; text() is always valid UTF-8: an unfinished sequence at
// the end is held back until it is complete, and becomes U+FFFD at Finish.
class TextAccumulator {
 public:
  explicit TextAccumulator(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  // Special tokens add nothing.
  void Append(int32_t token);
  void Finish();
  const std::string& text() const { return text_; }
  // True while the last bytes are held back.
  bool has_pending() const { return !pending_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  std::string text_;
  std::string pending_;
};

}  // namespace nightshift
