#include "engine/text/jinja/percent_format.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// Of widths and precisions: more is no column of text.
constexpr int64_t kMaxWidth = 1 << 20;

// "%[(name)][flags][width][.precision]conversion"
struct Directive {
  std::string flags;
  int64_t width = 0;
  int64_t precision = -1;  // absent
  char conversion = 's';

  bool Has(char flag) const { return flags.find(flag) != std::string::npos; }
};

class Formatter {
 public:
  Formatter(const OriginText& format, const JinjaValue& values, JinjaBudget& budget)
      : format_(format), values_(values), budget_(budget) {}

  absl::StatusOr<OriginText> Run() {
    RETURN_IF_ERROR(budget_.SpendBytes(format_.size()));
    const std::string& text = format_.text();
    while (offset_ < text.size()) {
      size_t percent = text.find('%', offset_);
      if (percent == std::string::npos) percent = text.size();
      output_.Append(format_, offset_, percent - offset_);
      offset_ = percent;
      if (offset_ < text.size()) RETURN_IF_ERROR(RunDirective());
    }
    // Python forgives values left over in what has items, but for tuples.
    const bool forgives = values_.Is(Kind::kMapping) || values_.Is(Kind::kUndefined) ||
                          (values_.Is(Kind::kList) && !IsTuple());
    if (!forgives && taken_ < NumValues()) return Refused("not all values are used");
    return std::move(output_);
  }

 private:
  static absl::Status Refused(absl::string_view what) { return absl::InvalidArgumentError(what); }

  bool IsTuple() const { return values_.IsSequence(SequenceKind::kTuple); }
  size_t NumValues() const { return IsTuple() ? values_.items().size() : 1; }

  absl::StatusOr<JinjaValue> NextValue() {
    if (named_) {
      named_ = false;
      return std::exchange(named_value_, JinjaValue());
    }
    if (taken_ >= NumValues()) return Refused("not enough values for the format");
    ++taken_;
    return IsTuple() ? values_.items()[taken_ - 1] : values_;
  }

  char Peek() const { return offset_ < format_.size() ? format_.text()[offset_] : '\0'; }

  absl::Status RunDirective() {
    RETURN_IF_ERROR(budget_.SpendSteps(1));
    ++offset_;
    if (Peek() == '(') RETURN_IF_ERROR(TakeName());
    Directive directive;
    while (Peek() != '\0' && absl::string_view("-+ #0").find(Peek()) != absl::string_view::npos)
      directive.flags.push_back(format_.text()[offset_++]);
    ASSIGN_OR_RETURN(directive.width, TakeNumber(0));
    if (directive.width < 0) {
      directive.flags.push_back('-');
      directive.width = -directive.width;
    }
    if (Peek() == '.') {
      ++offset_;
      ASSIGN_OR_RETURN(directive.precision, TakeNumber(0));
      if (directive.precision < 0) directive.precision = 0;
    }
    while (Peek() == 'h' || Peek() == 'l' || Peek() == 'L')
      ++offset_;
    if (offset_ == format_.size()) return Refused("the format ends inside a directive");
    directive.conversion = Peek();
    ++offset_;
    if (directive.conversion == '%') {
      output_.Append(format_, offset_ - 1, 1);
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(budget_.SpendBytes(
        static_cast<size_t>(directive.width + std::max<int64_t>(directive.precision, 0))));
    ASSIGN_OR_RETURN(const JinjaValue value, NextValue());
    return Write(directive, value);
  }

  absl::Status TakeName() {
    const size_t close = format_.text().find(')', offset_);
    if (close == std::string::npos) return Refused("a name in the format has no end");
    if (!values_.Is(Kind::kMapping)) return Refused("a format with names needs a mapping");
    const std::string name = format_.text().substr(offset_ + 1, close - offset_ - 1);
    const JinjaValue* found = values_.mapping().Find(name);
    if (found == nullptr) return Refused(absl::StrCat("the mapping has no ", name));
    named_ = true;
    named_value_ = *found;
    offset_ = close + 1;
    return absl::OkStatus();
  }

  // Digits, or * for the next value.
  absl::StatusOr<int64_t> TakeNumber(int64_t absent) {
    int64_t number = absent;
    if (Peek() == '*') {
      ++offset_;
      ASSIGN_OR_RETURN(const JinjaValue value, NextValue());
      if (!value.IsWhole()) return Refused("* wants a whole number");
      number = value.integer();
    } else {
      for (; Peek() >= '0' && Peek() <= '9' && number <= kMaxWidth; ++offset_)
        number = number * 10 + (Peek() - '0');
    }
    if (number > kMaxWidth || number < -kMaxWidth) {
      return absl::ResourceExhaustedError(
          absl::StrCat("a width or precision above ", kMaxWidth, " in a format"));
    }
    return number;
  }

  absl::Status Write(const Directive& directive, const JinjaValue& value) {
    switch (directive.conversion) {
      case 's': {
        ASSIGN_OR_RETURN(const OriginText text, ToText(value, budget_));
        return WriteText(directive, text);
      }
      case 'r': {
        ASSIGN_OR_RETURN(const OriginText text, ToRepr(value, budget_));
        return WriteText(directive, text);
      }
      case 'c':
        return WriteCharacter(directive, value);
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o':
        return WriteWhole(directive, value);
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        return WriteFloat(directive, value);
      default:
        return Refused(absl::StrCat("the conversion %", std::string(1, directive.conversion),
                                    " is not supported"));
    }
  }

  absl::Status WriteText(const Directive& directive, const OriginText& text) {
    OriginText cut = text;
    if (directive.precision >= 0) {
      size_t end = 0;
      for (int64_t i = 0; i < directive.precision && end < text.size(); ++i)
        end += NextCharacter(text.text(), end).length;
      cut = text.Substring(0, end);
    }
    const int64_t missing = directive.width - CountCharacters(cut.text());
    const std::string spaces(static_cast<size_t>(std::max<int64_t>(missing, 0)), ' ');
    if (!directive.Has('-')) output_.Append(spaces, /*trusted=*/false);
    output_.Append(cut);
    if (directive.Has('-')) output_.Append(spaces, /*trusted=*/false);
    return absl::OkStatus();
  }

  absl::Status WriteCharacter(Directive directive, const JinjaValue& value) {
    directive.precision = -1;
    if (value.Is(Kind::kText) && CountCharacters(value.text().text()) == 1) {
      return WriteText(directive, value.text());
    }
    const bool is_code = value.IsWhole() && value.integer() >= 0 && value.integer() <= 0x10FFFF &&
                         (value.integer() < 0xD800 || value.integer() > 0xDFFF);
    if (!is_code) return Refused("%c wants a character or its number");
    std::string character;
    AppendCharacter(static_cast<char32_t>(value.integer()), character);
    return WriteText(directive, OriginText(character, /*trusted=*/false));
  }

  // A number whose digits (with their prefix, if any) are `digits`, in its place.
  void WriteNumber(const Directive& directive, bool negative, absl::string_view prefix,
                   absl::string_view digits, bool is_finite) {
    const absl::string_view sign = negative             ? "-"
                                   : directive.Has('+') ? "+"
                                   : directive.Has(' ') ? " "
                                                        : "";
    const auto length = static_cast<int64_t>(sign.size() + prefix.size() + digits.size());
    const auto missing = static_cast<size_t>(std::max<int64_t>(directive.width - length, 0));
    const bool left = directive.Has('-');
    const bool zeros = directive.Has('0') && !left && is_finite;
    const std::string fill(missing, zeros ? '0' : ' ');
    output_.Append(absl::StrCat(left || zeros ? "" : fill, sign, prefix, zeros ? fill : "", digits,
                                left ? fill : ""),
                   /*trusted=*/false);
  }

  absl::Status WriteWhole(const Directive& directive, const JinjaValue& value) {
    const char conversion = directive.conversion;
    const bool is_decimal = conversion == 'd' || conversion == 'i' || conversion == 'u';
    if (!value.IsWhole() && !(is_decimal && value.Is(Kind::kFloat))) {
      return Refused(absl::StrCat("%", std::string(1, conversion), " wants a number, found ",
                                  value.TypeName()));
    }
    constexpr double kLimit = 9223372036854775808.0;  // 2^63
    if (value.Is(Kind::kFloat) && !(value.number() > -kLimit && value.number() < kLimit)) {
      return Refused("a number beyond 64 bits");
    }
    const int64_t number = value.IsWhole() ? value.integer() : static_cast<int64_t>(value.number());
    const uint64_t magnitude =
        number < 0 ? uint64_t{0} - static_cast<uint64_t>(number) : static_cast<uint64_t>(number);
    std::string digits = conversion == 'x'   ? absl::StrFormat("%x", magnitude)
                         : conversion == 'X' ? absl::StrFormat("%X", magnitude)
                         : conversion == 'o' ? absl::StrFormat("%o", magnitude)
                                             : absl::StrCat(magnitude);
    const auto missing = directive.precision - static_cast<int64_t>(digits.size());
    if (missing > 0) digits.insert(0, static_cast<size_t>(missing), '0');
    const std::string prefix =
        is_decimal || !directive.Has('#') ? "" : absl::StrCat("0", std::string(1, conversion));
    WriteNumber(directive, number < 0, prefix, digits, /*is_finite=*/true);
    return absl::OkStatus();
  }

  absl::Status WriteFloat(const Directive& directive, const JinjaValue& value) {
    if (!value.IsNumber()) {
      return Refused(absl::StrCat("%", std::string(1, directive.conversion),
                                  " wants a number, found ", value.TypeName()));
    }
    const double number = value.number();
    const std::string format =
        absl::StrCat(directive.Has('#') ? "%#.*" : "%.*", std::string(1, directive.conversion));
    const int precision = directive.precision < 0 ? 6 : static_cast<int>(directive.precision);
    // The longest double without exponent has 309 digits before the point.
    std::string digits(static_cast<size_t>(precision) + 400, '\0');
    const int written =
        std::snprintf(digits.data(), digits.size(), format.c_str(), precision, std::fabs(number));
    digits.resize(written < 0 ? 0 : static_cast<size_t>(written));
    WriteNumber(directive, std::signbit(number) && !std::isnan(number), "", digits,
                std::isfinite(number));
    return absl::OkStatus();
  }

  const OriginText& format_;
  const JinjaValue& values_;
  JinjaBudget& budget_;
  size_t offset_ = 0;
  size_t taken_ = 0;
  bool named_ = false;
  JinjaValue named_value_;
  OriginText output_;
};

}  // namespace

absl::StatusOr<OriginText> FormatPercent(const OriginText& format, const JinjaValue& values,
                                         JinjaBudget& budget) {
  return Formatter(format, values, budget).Run();
}

}  // namespace nightshift
