// The byte-level alphabet of GPT-2 (encoder.py, bytes_to_unicode): each byte is written as one
// printable character, so that any bytes fit into a JSON vocabulary.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// The bytes that `text` (UTF-8) writes; nullopt if a character is not of the alphabet.
std::optional<std::string> BytesFromAlphabet(absl::string_view text);

// `bytes` as UTF-8 text of the alphabet.
std::string BytesToAlphabet(absl::string_view bytes);

}  // namespace nightshift
