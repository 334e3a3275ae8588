#include "engine/text/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

// Bytes that stand for themselves: printable Latin-1 without the soft hyphen.
constexpr bool IsPlain(char32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

// All other bytes, in order, take the characters from U+0100 on.
constexpr char32_t kFirstMoved = 0x100;
constexpr size_t kMovedBytes = 68;

constexpr std::array<uint8_t, kMovedBytes> MovedBytes() {
  std::array<uint8_t, kMovedBytes> moved{};
  size_t count = 0;
  for (char32_t byte = 0; byte < 256; ++byte) {
    if (!IsPlain(byte)) moved[count++] = static_cast<uint8_t>(byte);
  }
  return moved;
}

constexpr std::array<char32_t, 256> CharacterOfByte() {
  std::array<char32_t, 256> characters{};
  for (char32_t byte = 0; byte < 256; ++byte)
    characters[byte] = byte;
  constexpr std::array<uint8_t, kMovedBytes> moved = MovedBytes();
  for (size_t i = 0; i < kMovedBytes; ++i) {
    characters[moved[i]] = kFirstMoved + static_cast<char32_t>(i);
  }
  return characters;
}

constexpr std::array<uint8_t, kMovedBytes> kMoved = MovedBytes();
constexpr std::array<char32_t, 256> kCharacters = CharacterOfByte();

}  // namespace

std::optional<std::string> BytesFromAlphabet(absl::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t offset = 0; offset < text.size();) {
    const Utf8Step step = NextCharacter(text, offset);
    offset += step.length;
    if (step.valid && IsPlain(step.character)) {
      bytes.push_back(static_cast<char>(step.character));
    } else if (step.valid && step.character >= kFirstMoved &&
               step.character < kFirstMoved + kMovedBytes) {
      bytes.push_back(static_cast<char>(kMoved[step.character - kFirstMoved]));
    } else {
      return std::nullopt;
    }
  }
  return bytes;
}

std::string BytesToAlphabet(absl::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  for (const char byte : bytes)
    AppendCharacter(kCharacters[static_cast<uint8_t>(byte)], text);
  return text;
}

}  // namespace nightshift
