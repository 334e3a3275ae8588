// UTF-8: validation, stepping by characters, and replacing what is broken by U+FFFD.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// One step of decoding. A broken sequence is cut as the Unicode standard recommends (section 3.9,
// "maximal subparts"), so that whole-text and piecewise replacement agree.
struct Utf8Step {
  size_t length = 0;       // bytes; at least 1
  char32_t character = 0;  // U+FFFD when not valid
  bool valid = false;
  bool unfinished = false;  // not valid only because the text ends too early
};

// Decodes the character at `offset` < text.size().
Utf8Step NextCharacter(absl::string_view text, size_t offset);

// The start of the character that ends just before `offset` > 0 of valid UTF-8.
size_t PreviousCharacter(absl::string_view text, size_t offset);

// The offset of the first byte that is not valid UTF-8, or npos.
size_t FindInvalidUtf8(absl::string_view text);

// Appends one character.
void AppendCharacter(char32_t character, std::string& text);

// Moves all complete characters of `pending` to the end of `text`, broken ones as U+FFFD; an
// unfinished sequence at the end stays in `pending`, unless `finish`.
void MoveCompleteCharacters(std::string& pending, bool finish, std::string& text);

// Unicode's White_Space property: what `\s` means to Hugging Face's regular expressions.
bool IsUnicodeSpace(char32_t character);

}  // namespace nightshift
