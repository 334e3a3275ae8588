// TokenDecoder: what each token adds to a text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// Immutable, thread-safe.
class TokenDecoder {
 public:
  // A text that grows token by token.
  struct Progress {
    std::string text;     // always valid UTF-8
    std::string pending;  // bytes that may yet become another text than they are now
    bool has_tokens = false;
    int32_t strips_left = 0;
  };

  // Copies what it needs of `spec`, which is valid.
  explicit TokenDecoder(const TokenizerSpec& spec);

  Progress Start() const;
  // Ids that are no token add nothing.
  void Append(int32_t id, Progress& progress) const;
  // Nothing follows.
  void Finish(Progress& progress) const;

  // The bytes that a token adds inside a text; empty for ids that are no token.
  absl::string_view BytesOf(int32_t id) const;

 private:
  std::string TextOf(const std::string& token, bool is_first) const;
  void EndBytes(Progress& progress) const;
  void AddText(absl::string_view text, Progress& progress) const;

  bool of_bytes_;
  DecoderSpec decoder_;
  // Token i is bytes [offsets_[i], offsets_[i + 1]) of bytes_.
  std::string bytes_;
  std::vector<size_t> offsets_;
  std::vector<bool> is_byte_;             // one byte of a run, by byte fallback
  std::vector<std::string> first_texts_;  // by id, where the first token of a text differs
};

}  // namespace nightshift
