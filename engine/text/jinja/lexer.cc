#include "engine/text/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

using Kind = JinjaToken::Kind;

bool IsNameStart(char c) {
  return absl::ascii_isalpha(static_cast<unsigned char>(c)) || c == '_';
}
bool IsDigit(char c) {
  return absl::ascii_isdigit(static_cast<unsigned char>(c));
}
bool IsNamePart(char c) {
  return IsNameStart(c) || IsDigit(c);
}

class Lexer {
 public:
  explicit Lexer(const std::string& source) : source_(source) {}

  absl::StatusOr<std::vector<JinjaToken>> Run() {
    while (offset_ < source_.size())
      RETURN_IF_ERROR(LexDataAndTag());
    Push(Kind::kEnd, "", offset_);
    return std::move(tokens_);
  }

 private:
  // Text up to the next tag, and that tag.
  absl::Status LexDataAndTag() {
    const size_t open = FindTag();
    if (open == absl::string_view::npos) {
      PushData(offset_, source_.size());
      Advance(source_.size());
      return absl::OkStatus();
    }
    const char kind = source_[open + 1];
    const char sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
    const size_t data_end = EndOfData(open, kind, sign);
    PushData(offset_, data_end);
    Advance(open);
    const size_t inner = open + (sign == '-' || sign == '+' ? 3 : 2);
    if (kind == '#') return LexComment(inner);
    if (kind == '%' && IsRaw(inner)) return LexRaw(inner);
    Push(kind == '%' ? Kind::kBlockBegin : Kind::kVariableBegin, "", inner);
    Advance(inner);
    return LexTag(kind);
  }

  size_t FindTag() const {
    for (size_t open = source_.find('{', offset_); open != absl::string_view::npos;
         open = source_.find('{', open + 1)) {
      if (open + 1 == source_.size()) break;
      const char next = source_[open + 1];
      if (next == '%' || next == '{' || next == '#') return open;
    }
    return absl::string_view::npos;
  }

  // Where the text before a tag ends: `-` strips all white space, a block or comment that stands
  // alone on its line strips what stands before it there (lstrip_blocks), unless `+` says not to.
  size_t EndOfData(size_t open, char kind, char sign) const {
    size_t end = open;
    if (sign == '-') {
      while (end > offset_) {
        const size_t previous = PreviousCharacter(source_, end);
        if (!IsPythonSpace(NextCharacter(source_, previous).character)) break;
        end = previous;
      }
      return end;
    }
    if (sign == '+' || kind == '{') return open;
    while (end > offset_ && source_[end - 1] != '\n') {
      const size_t previous = PreviousCharacter(source_, end);
      if (!IsPythonSpace(NextCharacter(source_, previous).character)) return open;
      end = previous;
    }
    const bool at_line_start = end > offset_ || at_line_start_;
    return at_line_start ? end : open;
  }

  void PushData(size_t first, size_t last) {
    if (last > first) Push(Kind::kData, std::string(source_.substr(first, last - first)), last);
  }

  void Push(Kind kind, std::string text, size_t last) {
    tokens_.push_back(
        {.kind = kind, .text = std::move(text), .first = offset_, .last = last, .line = line_});
  }

  // Moves on, counting lines.
  void Advance(size_t to) {
    const absl::string_view passed = source_.substr(offset_, to - offset_);
    line_ += static_cast<int>(std::count(passed.begin(), passed.end(), '\n'));
    if (!passed.empty()) at_line_start_ = passed.back() == '\n';
    offset_ = to;
  }

  size_t SkipSpace(size_t offset) const {
    while (offset < source_.size()) {
      const Utf8Step step = NextCharacter(source_, offset);
      if (!IsPythonSpace(step.character)) break;
      offset += step.length;
    }
    return offset;
  }

  // Behind a tag's end: `-` strips all white space, a block or comment one newline (trim_blocks)
  // unless `+` says not to.
  size_t BehindTag(size_t close, char sign, bool trims) const {
    if (sign == '-') return SkipSpace(close);
    if (trims && sign != '+' && source_.substr(close, 1) == "\n") return close + 1;
    return close;
  }

  absl::Status LexComment(size_t inner) {
    const size_t close = source_.find("#}", inner);
    if (close == absl::string_view::npos) return Refused("a comment without its end");
    const char sign = close > inner ? source_[close - 1] : '\0';
    Advance(BehindTag(close + 2, sign, /*trims=*/true));
    return absl::OkStatus();
  }

  // The offset behind `{% raw %}`, or npos.
  size_t BehindWordTag(size_t inner, absl::string_view word, char& sign) const {
    size_t offset = SkipSpace(inner);
    if (!absl::StartsWith(source_.substr(offset), word)) return absl::string_view::npos;
    offset = SkipSpace(offset + word.size());
    sign = offset < source_.size() ? source_[offset] : '\0';
    if (sign == '-' || sign == '+') ++offset;
    return absl::StartsWith(source_.substr(offset), "%}") ? offset + 2 : absl::string_view::npos;
  }

  bool IsRaw(size_t inner) const {
    char sign = '\0';
    return BehindWordTag(inner, "raw", sign) != absl::string_view::npos && sign != '+';
  }

  absl::Status LexRaw(size_t inner) {
    char sign = '\0';
    const size_t begin = BehindWordTag(inner, "raw", sign);
    Advance(BehindTag(begin, sign, /*trims=*/false));
    for (size_t open = source_.find("{%", offset_); open != absl::string_view::npos;
         open = source_.find("{%", open + 1)) {
      const char open_sign = open + 2 < source_.size() ? source_[open + 2] : '\0';
      const size_t start = open + (open_sign == '-' || open_sign == '+' ? 3 : 2);
      const size_t end = BehindWordTag(start, "endraw", sign);
      if (end == absl::string_view::npos) continue;
      PushData(offset_, EndOfData(open, '%', open_sign));
      Advance(BehindTag(end, sign, /*trims=*/true));
      return absl::OkStatus();
    }
    return Refused("raw without endraw");
  }

  // The tokens of one tag, up to and with its end.
  absl::Status LexTag(char kind) {
    const absl::string_view close = kind == '%' ? "%}" : "}}";
    const Kind end = kind == '%' ? Kind::kBlockEnd : Kind::kVariableEnd;
    std::string brackets;  // what is open inside the tag: `}}` may close two of them
    while (true) {
      Advance(SkipSpace(offset_));
      if (offset_ == source_.size()) return Refused("a tag without its end");
      const char sign = source_[offset_];
      const size_t sign_bytes = sign == '-' || (sign == '+' && kind == '%') ? 1 : 0;
      if (brackets.empty() && absl::StartsWith(source_.substr(offset_ + sign_bytes), close)) {
        const size_t behind = offset_ + sign_bytes + 2;
        Push(end, "", behind);
        Advance(BehindTag(behind, sign, /*trims=*/kind == '%'));
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(LexToken(brackets));
    }
  }

  absl::Status LexToken(std::string& brackets) {
    const char c = source_[offset_];
    if (IsNameStart(c)) {
      size_t end = offset_;
      while (end < source_.size() && IsNamePart(source_[end]))
        ++end;
      return Take(Kind::kName, end);
    }
    if (IsDigit(c)) return LexNumber();
    if (c == '\'' || c == '"') return LexString(c);
    return LexOperator(brackets);
  }

  absl::Status Take(Kind kind, size_t end) {
    Push(kind, std::string(source_.substr(offset_, end - offset_)), end);
    Advance(end);
    return absl::OkStatus();
  }

  absl::Status LexNumber() {
    size_t end = offset_;
    // 0x1F, 0o17, 0b11.
    if (source_[end] == '0' && end + 1 < source_.size() &&
        absl::string_view("xXoObB").find(source_[end + 1]) != absl::string_view::npos) {
      while (end < source_.size() && IsNamePart(source_[end]))
        ++end;
      return Take(Kind::kInteger, end);
    }
    const auto skip_digits = [&] {
      while (end < source_.size() && (IsDigit(source_[end]) || source_[end] == '_'))
        ++end;
    };
    const auto digit_at = [&](size_t place) {
      return place < source_.size() && IsDigit(source_[place]);
    };
    Kind kind = Kind::kInteger;
    skip_digits();
    if (source_.substr(end, 1) == "." && digit_at(end + 1)) {
      kind = Kind::kFloat;
      ++end;
      skip_digits();
    }
    if (end < source_.size() && (source_[end] == 'e' || source_[end] == 'E')) {
      const size_t sign =
          end + 1 < source_.size() && (source_[end + 1] == '+' || source_[end + 1] == '-') ? 1 : 0;
      if (digit_at(end + 1 + sign)) {
        kind = Kind::kFloat;
        end += 1 + sign;
        skip_digits();
      }
    }
    return Take(kind, end);
  }

  absl::Status LexString(char quote) {
    std::string text;
    size_t offset = offset_ + 1;
    while (offset < source_.size() && source_[offset] != quote) {
      if (source_[offset] == '\\') {
        RETURN_IF_ERROR(LexEscape(offset, text));
      } else {
        text.push_back(source_[offset++]);
      }
    }
    if (offset == source_.size()) return Refused("a string without its end");
    Push(Kind::kString, std::move(text), offset + 1);
    Advance(offset + 1);
    return absl::OkStatus();
  }

  // Python's escapes. Unknown ones keep their backslash.
  absl::Status LexEscape(size_t& offset, std::string& text) {
    static constexpr absl::string_view kLetters = "abfnrtv\\'\"";
    static constexpr absl::string_view kMeanings = "\a\b\f\n\r\t\v\\'\"";
    if (offset + 1 == source_.size()) return Refused("a string without its end");
    const char c = source_[offset + 1];
    offset += 2;
    if (c == '\n') return absl::OkStatus();
    const size_t letter = kLetters.find(c);
    if (letter != absl::string_view::npos) {
      text.push_back(kMeanings[letter]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return LexCharacterCode(c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, offset, text);
    } else if (c >= '0' && c <= '7') {
      --offset;
      size_t digits = 1;
      while (digits < 3 && offset + digits < source_.size() && source_[offset + digits] >= '0' &&
             source_[offset + digits] <= '7') {
        ++digits;
      }
      return LexCharacterCode(digits, 8, offset, text);
    } else if (c == 'N') {
      return Refused("\\N{...} in a string is not supported");
    } else {
      text.push_back('\\');
      text.push_back(c);
    }
    return absl::OkStatus();
  }

  absl::Status LexCharacterCode(size_t digits, uint32_t base, size_t& offset, std::string& text) {
    uint32_t code = 0;
    for (size_t i = 0; i < digits; ++i, ++offset) {
      const auto c =
          offset < source_.size() ? static_cast<unsigned char>(source_[offset]) : uint8_t{0};
      if (!absl::ascii_isxdigit(c)) return Refused("an escape with too few digits in a string");
      const int digit = absl::ascii_isdigit(c) ? c - '0' : absl::ascii_tolower(c) - 'a' + 10;
      code = code * base + static_cast<uint32_t>(digit);
      if (code > 0x10FFFF) return Refused("an escape beyond Unicode in a string");
    }
    if (code >= 0xD800 && code < 0xE000) return Refused("half a surrogate pair in a string");
    AppendCharacter(code, text);
    return absl::OkStatus();
  }

  absl::Status LexOperator(std::string& brackets) {
    static constexpr std::array<absl::string_view, 6> kPairs = {"==", "!=", "<=", ">=", "//", "**"};
    const absl::string_view rest = source_.substr(offset_);
    const char c = rest[0];
    for (const absl::string_view pair : kPairs) {
      if (absl::StartsWith(rest, pair)) return Take(Kind::kOperator, offset_ + 2);
    }
    static constexpr absl::string_view kSingle = "+-*/%~<>=.,:|()[]{}";
    if (kSingle.find(c) == absl::string_view::npos) {
      const size_t length = NextCharacter(source_, offset_).length;
      return Refused(
          absl::StrCat("the character '", source_.substr(offset_, length), "' inside a tag"));
    }
    if (c == '(' || c == '[' || c == '{') brackets.push_back(c);
    if (c == ')' || c == ']' || c == '}') {
      const char wanted = c == ')' ? '(' : c == ']' ? '[' : '{';
      if (brackets.empty() || brackets.back() != wanted) {
        return Refused(absl::StrCat("'", rest.substr(0, 1), "' that closes nothing"));
      }
      brackets.pop_back();
    }
    return Take(Kind::kOperator, offset_ + 1);
  }

  absl::Status Refused(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat("chat template line ", line_, ": ", what));
  }

  absl::string_view source_;
  size_t offset_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<JinjaToken> tokens_;
};

}  // namespace

std::string NormalizeNewlines(const std::string& source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      text.push_back(source[i]);
      continue;
    }
    text.push_back('\n');
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

absl::StatusOr<std::vector<JinjaToken>> LexJinja(const std::string& source) {
  return Lexer(source).Run();
}

}  // namespace nightshift
