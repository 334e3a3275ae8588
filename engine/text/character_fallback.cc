#include "engine/text/character_fallback.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

// -1 for what is not a hexadecimal digit.
int DigitOf(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace

int ByteOfToken(absl::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return -1;
  const int high = token[3] == '+' ? 0 : DigitOf(token[3]);
  const int low = DigitOf(token[4]);
  return high < 0 || low < 0 ? -1 : 16 * high + low;
}

absl::StatusOr<CharacterFallback> CharacterFallback::Create(const TokenizerSpec& spec) {
  CharacterFallback fallback;
  fallback.byte_tokens_.fill(-1);
  fallback.unknown_token_ = spec.unknown_token;
  fallback.fuses_unknown_ = spec.fuse_unknown;
  fallback.has_bytes_ = spec.byte_fallback;
  if (!spec.byte_fallback) return fallback;
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const int byte = ByteOfToken(spec.tokens[id]);
    // Encoding knows upper case only.
    if (byte < 0 ||
        spec.tokens[id] !=
            absl::StrCat("<0x",
                         absl::AsciiStrToUpper(absl::StrCat(absl::Hex(byte, absl::kZeroPad2))),
                         ">")) {
      continue;
    }
    fallback.byte_tokens_[static_cast<size_t>(byte)] = static_cast<int32_t>(id);
  }
  for (size_t byte = 0; byte < fallback.byte_tokens_.size(); ++byte) {
    if (fallback.byte_tokens_[byte] < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer: byte fallback without a token for the byte 0x",
                       absl::Hex(byte, absl::kZeroPad2)));
    }
  }
  return fallback;
}

}  // namespace nightshift
