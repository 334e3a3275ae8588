#include "kernels/base/printable_text.h"

#include <cstddef>

namespace nightshift {
namespace {

constexpr char kDigits[] = "0123456789abcdef";

void AppendEscaped(unsigned char byte, std::string& text) {
  text += "\\x";
  text.push_back(kDigits[byte >> 4U]);
  text.push_back(kDigits[byte & 15U]);
}

}  // namespace

std::string PrintableText(absl::string_view text, LineBreaks line_breaks) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool is_kept = byte == '\n' && line_breaks == LineBreaks::kKeep;
    if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080 to U+009F
      AppendEscaped(next, printable);
      ++i;
    } else if ((byte < 0x20 || byte == 0x7f) && !is_kept) {
      AppendEscaped(byte, printable);
    } else {
      printable.push_back(text[i]);
    }
  }
  return printable;
}

}  // namespace nightshift
