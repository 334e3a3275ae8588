#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

uint8_t ByteAt(absl::string_view text, size_t offset) {
  return static_cast<uint8_t>(text[offset]);
}

// Length that a lead byte announces, and the range its second byte must lie in (Unicode 3.9,
// table 3-7); length 0 for bytes that cannot lead.
struct Lead {
  size_t length = 0;
  uint8_t second_low = 0x80;
  uint8_t second_high = 0xBF;
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0x80) return {.length = 1};
  if (byte >= 0xC2 && byte <= 0xDF) return {.length = 2};
  if (byte == 0xE0) return {.length = 3, .second_low = 0xA0};
  if (byte == 0xED) return {.length = 3, .second_high = 0x9F};
  if (byte >= 0xE1 && byte <= 0xEF) return {.length = 3};
  if (byte == 0xF0) return {.length = 4, .second_low = 0x90};
  if (byte >= 0xF1 && byte <= 0xF3) return {.length = 4};
  if (byte == 0xF4) return {.length = 4, .second_high = 0x8F};
  return {};
}

constexpr char32_t kReplacement = 0xFFFD;

}  // namespace

Utf8Step NextCharacter(absl::string_view text, size_t offset) {
  const uint8_t first = ByteAt(text, offset);
  const Lead lead = LeadOf(first);
  if (lead.length == 1) return {.length = 1, .character = first, .valid = true};
  if (lead.length == 0) return {.length = 1, .character = kReplacement};
  char32_t character = first & (0x7Fu >> lead.length);
  for (size_t i = 1; i < lead.length; ++i) {
    if (offset + i == text.size()) {
      return {.length = i, .character = kReplacement, .unfinished = true};
    }
    const uint8_t byte = ByteAt(text, offset + i);
    const uint8_t low = i == 1 ? lead.second_low : uint8_t{0x80};
    const uint8_t high = i == 1 ? lead.second_high : uint8_t{0xBF};
    if (byte < low || byte > high) return {.length = i, .character = kReplacement};
    character = character << 6 | (byte & 0x3Fu);
  }
  return {.length = lead.length, .character = character, .valid = true};
}

size_t PreviousCharacter(absl::string_view text, size_t offset) {
  do {
    --offset;
  } while (offset > 0 && (ByteAt(text, offset) & 0xC0) == 0x80);
  return offset;
}

size_t FindInvalidUtf8(absl::string_view text) {
  for (size_t offset = 0; offset < text.size();) {
    if (ByteAt(text, offset) < 0x80) {
      ++offset;
      continue;
    }
    const Utf8Step step = NextCharacter(text, offset);
    if (!step.valid) return offset;
    offset += step.length;
  }
  return absl::string_view::npos;
}

void AppendCharacter(char32_t character, std::string& text) {
  const auto append = [&text](char32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (character < 0x80) {
    append(character);
  } else if (character < 0x800) {
    append(0xC0 | character >> 6);
    append(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    append(0xE0 | character >> 12);
    append(0x80 | (character >> 6 & 0x3F));
    append(0x80 | (character & 0x3F));
  } else {
    append(0xF0 | character >> 18);
    append(0x80 | (character >> 12 & 0x3F));
    append(0x80 | (character >> 6 & 0x3F));
    append(0x80 | (character & 0x3F));
  }
}

void MoveCompleteCharacters(std::string& pending, bool finish, std::string& text) {
  size_t offset = 0;
  while (offset < pending.size()) {
    const Utf8Step step = NextCharacter(pending, offset);
    if (step.unfinished && !finish) break;
    if (step.valid) {
      text.append(pending, offset, step.length);
    } else {
      AppendCharacter(kReplacement, text);
    }
    offset += step.length;
  }
  pending.erase(0, offset);
}

bool IsUnicodeSpace(char32_t character) {
  return (character >= 0x9 && character <= 0xD) || character == 0x20 || character == 0x85 ||
         character == 0xA0 || character == 0x1680 || (character >= 0x2000 && character <= 0x200A) ||
         character == 0x2028 || character == 0x2029 || character == 0x202F || character == 0x205F ||
         character == 0x3000;
}

}  // namespace nightshift
