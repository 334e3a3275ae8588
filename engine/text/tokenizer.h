// Tokenizer: text to token ids and back. Immutable and thread-safe after Create.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/text_range.h"
#include "engine/text/token_decoder.h"
#include "engine/text/tokenizer_spec.h"

namespace nightshift {

class AddedTokenMatcher;
class BytePairMerger;
class PreTokenizer;
class TextNormalizer;
class UnigramModel;

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
  // encoding it. Bytes that Encode drops (without a token, or stripped beside an added token)
  // count. 0 where one token may stand for any number of bytes.
  int64_t LeastTokens(int64_t text_bytes) const;

  // The bytes that one token adds inside a text; empty for ids out of range. Special tokens give
  // their text.
  absl::string_view TokenBytes(int32_t id) const;
  bool IsSpecial(int32_t id) const;
  // Whole-sequence decoding; always valid UTF-8 (broken bytes become U+FFFD).
  std::string Decode(const std::vector<int32_t>& ids, bool skip_special) const;

  const TokenizerSpec& spec() const { return spec_; }
  const TokenDecoder& decoder() const { return *decoder_; }

 private:
  struct Scratch;

  explicit Tokenizer(TokenizerSpec spec);
  absl::Status Build();
  absl::Status BuildMatchers();
  int64_t MostBytesOfAToken() const;
  absl::Status EncodeSegment(absl::string_view text, const std::vector<TextRange>& trusted,
                             bool at_start, Scratch& scratch, std::vector<int32_t>& ids) const;
  absl::Status EncodeOrdinary(absl::string_view text, bool at_start, Scratch& scratch,
                              std::vector<int32_t>& ids) const;

  TokenizerSpec spec_;
  std::vector<bool> special_;  // by id
  absl::flat_hash_map<int32_t, absl::string_view> special_texts_;
  // Of the text that a token stands for; 0: no bound.
  int64_t most_bytes_of_a_token_ = 0;
  std::unique_ptr<AddedTokenMatcher> raw_tokens_;         // found before normalizing
  std::unique_ptr<AddedTokenMatcher> normalized_tokens_;  // found behind it
  std::unique_ptr<TextNormalizer> normalizer_;
  std::unique_ptr<PreTokenizer> pre_tokenizer_;
  std::unique_ptr<BytePairMerger> merger_;  // or unigram_
  std::unique_ptr<UnigramModel> unigram_;
  std::unique_ptr<TokenDecoder> decoder_;
};

// Collects the text of generated tokens; text() is always valid UTF-8 and only grows: bytes that
// may yet become another text (an unfinished character, a run of byte tokens) are held back until
// that is decided, at the latest by Finish. The end is what Decode gives for all tokens together.
class TextAccumulator {
 public:
  explicit TextAccumulator(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), progress_(tokenizer.decoder().Start()) {}
  // Special tokens add nothing.
  void Append(int32_t token);
  void Finish();
  const std::string& text() const { return progress_.text; }
  // True while the last bytes are held back.
  bool has_pending() const { return !progress_.pending.empty(); }

 private:
  const Tokenizer& tokenizer_;
  TokenDecoder::Progress progress_;
};

}  // namespace nightshift
