// CharacterFallback: what becomes of a character that has no token.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/tokenizer_spec.h"

namespace nightshift {

// The byte that a token <0x00> to <0xFF> writes, or -1. Hugging Face reads both digits in either
// case, or + and one digit.
int ByteOfToken(absl::string_view token);

// Immutable.
class CharacterFallback {
 public:
  // Errors: INVALID_ARGUMENT if `spec` asks for byte fallback and a byte has no token.
  static absl::StatusOr<CharacterFallback> Create(const TokenizerSpec& spec);

  // With bytes each character has tokens; without it may have none.
  bool has_bytes() const { return has_bytes_; }
  int32_t byte_token(char byte) const { return byte_tokens_[static_cast<uint8_t>(byte)]; }
  // -1: such characters are dropped.
  int32_t unknown_token() const { return unknown_token_; }
  bool fuses_unknown() const { return fuses_unknown_; }

 private:
  CharacterFallback() = default;

  std::array<int32_t, 256> byte_tokens_;
  bool has_bytes_ = false;
  int32_t unknown_token_ = -1;
  bool fuses_unknown_ = false;
};

}  // namespace nightshift
