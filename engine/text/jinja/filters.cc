// Filters of chat templates over text and single values: {{ value | name(arguments) }}.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/percent_format.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;
using Result = absl::StatusOr<JinjaValue>;

Result Trim(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(OriginText text, ToText(self, context.budget));
  return FindBuiltin(TextMethods(), "strip")
      ->run(context, JinjaValue::Text(std::move(text)), arguments);
}

template <LetterCase letter_case>
Result WithCase(JinjaContext& context, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const OriginText text, ToText(self, context.budget));
  return JinjaValue::Text(ChangeCase(text, letter_case));
}

// Jinja's title: a word begins behind a space, a hyphen or an opening bracket, not, as in Python's
// str.title, behind everything that is no letter.
Result Title(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const OriginText text, ToText(self, context.budget));
  return JinjaValue::Text(ChangeCase(text, LetterCase::kJinjaTitle));
}

Result ReplaceIn(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText text, ToText(self, context.budget));
  ASSIGN_OR_RETURN(const OriginText old, ToText(arguments[0], context.budget));
  ASSIGN_OR_RETURN(const OriginText replacement, ToText(arguments[1], context.budget));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Integer(2, -1));
  ASSIGN_OR_RETURN(OriginText replaced, Replace(text, old, replacement, limit, context.budget));
  return JinjaValue::Text(std::move(replaced));
}

Result Center(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(OriginText text, ToText(self, context.budget));
  JinjaArguments of_method = arguments;
  if (!arguments.Has(0)) of_method.values[0] = JinjaValue::Integer(80);
  of_method.values.resize(2);
  of_method.given.resize(2);
  return FindBuiltin(TextMethods(), "center")
      ->run(context, JinjaValue::Text(std::move(text)), of_method);
}

// Lines but the first (unless `first`) begin with the indention; empty ones too if `blank`.
Result Indent(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (!self.Is(Kind::kText)) {
    return absl::InvalidArgumentError(absl::StrCat("text wanted, found ", self.TypeName()));
  }
  ASSIGN_OR_RETURN(const bool first, arguments.Bool(1, false));
  ASSIGN_OR_RETURN(const bool blank, arguments.Bool(2, false));
  OriginText indention;
  if (arguments[0].Is(Kind::kText)) {
    indention = arguments[0].text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 4));
    RETURN_IF_ERROR(context.budget.SpendBytes(static_cast<size_t>(std::max<int64_t>(width, 0))));
    indention.Append(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '),
                     /*trusted=*/false);
  }
  // A newline at the end of the text is a line of its own.
  OriginText text = self.text();
  text.Append("\n", /*trusted=*/false);
  ASSIGN_OR_RETURN(const std::vector<OriginText> lines,
                   SplitIntoLines(text, /*keep_ends=*/false, context.budget));
  OriginText indented;
  for (size_t i = 0; i < lines.size(); ++i) {
    RETURN_IF_ERROR(context.budget.SpendBytes(indention.size()));
    if (i > 0) indented.Append("\n", /*trusted=*/false);
    if (i == 0 ? first : blank || !lines[i].empty()) indented.Append(indention);
    indented.Append(lines[i]);
  }
  return JinjaValue::Text(std::move(indented));
}

// Text of more than length + leeway characters is cut, at a word unless `killwords`.
Result Truncate(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t length, arguments.Integer(0, 255));
  ASSIGN_OR_RETURN(const bool kill_words, arguments.Bool(1, false));
  ASSIGN_OR_RETURN(const OriginText* given_end, arguments.Text(2));
  ASSIGN_OR_RETURN(const int64_t leeway, arguments.Integer(3, 5));
  const OriginText end = given_end == nullptr ? OriginText("...", /*trusted=*/false) : *given_end;
  const int64_t end_length = CountCharacters(end.text());
  if (length < end_length || leeway < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("length ", length, " and leeway ", leeway, " for an end of ", end_length));
  }
  ASSIGN_OR_RETURN(const int64_t all, Length(self, context.budget));
  if (all - leeway <= length) return self;
  if (!self.Is(Kind::kText)) {
    return absl::InvalidArgumentError(absl::StrCat("text wanted, found ", self.TypeName()));
  }
  const OriginText& text = self.text();
  RETURN_IF_ERROR(context.budget.SpendBytes(text.size()));
  const size_t bytes = OffsetOfCharacter(text.text(), length - end_length);
  size_t kept = bytes;
  if (!kill_words) {
    kept = text.text().substr(0, bytes).rfind(' ');
    if (kept == std::string::npos) kept = bytes;
  }
  OriginText cut = text.Substring(0, kept);
  cut.Append(end);
  return JinjaValue::Text(std::move(cut));
}

Result Default(JinjaContext& /*context*/, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const bool for_false, arguments.Bool(1, false));
  const bool absent = self.Is(Kind::kUndefined) || (for_false && !self.IsTrue());
  if (!absent) return self;
  return arguments.given[0] ? arguments[0] : JinjaValue::Text("", /*trusted=*/true);
}

// As transformers defines it: Python's json.dumps without escapes for what is not ASCII.
Result ToJsonText(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  JsonStyle style;
  ASSIGN_OR_RETURN(style.ascii, arguments.Bool(0, false));
  if (arguments[1].Is(Kind::kText)) {
    style.indent = arguments[1].text().text();
  } else if (arguments.Has(1)) {
    ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(1, 0));
    if (width > kMaxJsonIndent) {
      return absl::InvalidArgumentError(
          absl::StrCat("indent ", width, ", at most ", kMaxJsonIndent));
    }
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' ');
  }
  if (style.indent.has_value()) style.item_separator.assign(1, ',');
  if (arguments.Has(2)) {
    ASSIGN_OR_RETURN(const std::vector<JinjaValue> separators,
                     Elements(arguments[2], context.budget));
    if (separators.size() != 2 || !separators[0].Is(Kind::kText) ||
        !separators[1].Is(Kind::kText)) {
      return absl::InvalidArgumentError("separators: two texts wanted");
    }
    style.item_separator = separators[0].text().text();
    style.key_separator = separators[1].text().text();
  }
  ASSIGN_OR_RETURN(style.sort_keys, arguments.Bool(3, false));
  ASSIGN_OR_RETURN(OriginText text, ToJson(self, style, context.budget));
  return JinjaValue::Text(std::move(text));
}

Result ToString(JinjaContext& context, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(OriginText text, ToText(self, context.budget));
  return JinjaValue::Text(std::move(text));
}

Result Format(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (!arguments.rest.positional.empty() && !arguments.rest.keywords.empty()) {
    return absl::InvalidArgumentError("values and names in one call");
  }
  ASSIGN_OR_RETURN(const OriginText text, ToText(self, context.budget));
  std::vector<std::pair<JinjaValue, JinjaValue>> named;
  for (const auto& [name, value] : arguments.rest.keywords)
    named.emplace_back(JinjaValue::Text(name, /*trusted=*/true), value);
  ASSIGN_OR_RETURN(const JinjaValue values,
                   named.empty() ? JinjaValue::List(arguments.rest.positional, SequenceKind::kTuple)
                                 : JinjaValue::Mapping(std::move(named)));
  ASSIGN_OR_RETURN(OriginText formatted, FormatPercent(text, values, context.budget));
  return JinjaValue::Text(std::move(formatted));
}

// The number that text spells, as Python reads it: white space around it, digits that may be
// grouped by underscores.
template <typename Number>
std::optional<Number> ParseNumber(const JinjaValue& value, int base = 10) {
  const OriginText stripped = Strip(value.text(), nullptr, {});
  std::string text;
  for (size_t i = 0; i < stripped.size(); ++i) {
    const char c = stripped.text()[i];
    const auto is_digit = [&](size_t place) {
      return place < stripped.size() && stripped.text()[place] >= '0' &&
             stripped.text()[place] <= '9';
    };
    if (c == '_' && i > 0 && is_digit(i - 1) && is_digit(i + 1)) continue;
    text.push_back(c);
  }
  const char* first = text.data();
  const char* last = first + text.size();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') ++first;
  Number number{};
  std::from_chars_result end{};
  if constexpr (std::is_integral_v<Number>) {
    end = std::from_chars(first, last, number, base);
  } else {
    end = std::from_chars(first, last, number);
  }
  if (end.ec != std::errc() || end.ptr != last) return std::nullopt;
  return number;
}

std::optional<double> ToDouble(const JinjaValue& value) {
  if (value.IsNumber()) return value.number();
  return value.Is(Kind::kText) ? ParseNumber<double>(value) : std::nullopt;
}

Result ToInteger(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.Is(Kind::kUndefined)) return UseOfUndefined(self);
  if (self.IsWhole()) return JinjaValue::Integer(self.integer());
  ASSIGN_OR_RETURN(const int64_t base, arguments.Integer(1, 10));
  if (base < 2 || base > 36) {
    return absl::InvalidArgumentError(absl::StrCat("base ", base, ", want 2 to 36"));
  }
  if (self.Is(Kind::kText)) {
    RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
    const std::optional<int64_t> number = ParseNumber<int64_t>(self, static_cast<int>(base));
    if (number.has_value()) return JinjaValue::Integer(*number);
  }
  const std::optional<double> number = ToDouble(self);
  // 2^63, beyond which the conversion has no meaning.
  constexpr double kLimit = 9223372036854775808.0;
  if (number.has_value() && *number > -kLimit && *number < kLimit) {
    return JinjaValue::Integer(static_cast<int64_t>(*number));
  }
  if (number.has_value() && std::isfinite(*number)) {
    return absl::InvalidArgumentError("whole number beyond 64 bits");
  }
  return arguments.given[0] ? arguments[0] : JinjaValue::Integer(0);
}

Result ToFloat(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.Is(Kind::kUndefined)) return UseOfUndefined(self);
  if (self.Is(Kind::kText)) RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  const std::optional<double> number = ToDouble(self);
  if (number.has_value()) return JinjaValue::Float(*number);
  return arguments.given[0] ? arguments[0] : JinjaValue::Float(0);
}

Result Absolute(JinjaContext& /*context*/, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  if (!self.IsNumber()) {
    return absl::InvalidArgumentError(absl::StrCat("a number wanted, found ", self.TypeName()));
  }
  if (self.Is(Kind::kFloat)) return JinjaValue::Float(std::fabs(self.number()));
  return self.number() < 0 ? Negate(self) : Plus(self);
}

// Python's round of a double: the exact value is rounded, halves to even.
double RoundExactly(double number, int64_t digits) {
  // Beyond these, rounding changes nothing, or leaves nothing.
  if (!std::isfinite(number) || digits > 323) return number;
  if (digits < -308) return std::copysign(0.0, number);
  if (digits < 0) {
    const double unit = std::pow(10.0, static_cast<double>(-digits));
    return std::nearbyint(number / unit) * unit;
  }
  std::array<char, 700> text{};
  std::snprintf(text.data(), text.size(), "%.*f", static_cast<int>(digits), number);
  return std::strtod(text.data(), nullptr);
}

Result Round(JinjaContext& /*context*/, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t digits, arguments.Integer(0, 0));
  ASSIGN_OR_RETURN(const OriginText* method, arguments.Text(1));
  const std::string how = method == nullptr ? "common" : method->text();
  if (how != "common" && how != "ceil" && how != "floor") {
    return absl::InvalidArgumentError("method must be common, ceil or floor");
  }
  if (!self.IsNumber()) {
    return absl::InvalidArgumentError(absl::StrCat("a number wanted, found ", self.TypeName()));
  }
  if (how == "common") {
    if (!self.IsWhole()) return JinjaValue::Float(RoundExactly(self.number(), digits));
    if (digits >= 0) return JinjaValue::Integer(self.integer());
    return absl::InvalidArgumentError("a negative precision for a whole number is not supported");
  }
  const double unit = std::pow(10.0, static_cast<double>(digits));
  const double scaled = self.number() * unit;
  // Python's ceil and floor give whole numbers, which have no negative zero.
  const double whole = (how == "ceil" ? std::ceil(scaled) : std::floor(scaled)) + 0.0;
  return JinjaValue::Float(whole / unit);
}

// Output is never escaped here, so marking it as safe changes nothing.
Result Safe(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return ToString(context, self, arguments);
}

}  // namespace

const std::vector<JinjaBuiltin>& TextFilters() {
  static const std::vector<JinjaBuiltin> table = {
      {"abs", {}, 0, Absolute},
      {"capitalize", {}, 0, WithCase<LetterCase::kCapital>},
      {"center", {"width"}, 0, Center},
      {"d", {"default_value", "boolean"}, 0, Default},
      {"default", {"default_value", "boolean"}, 0, Default},
      {"float", {"default"}, 0, ToFloat},
      {"format", {"*"}, 0, Format},
      {"indent", {"width", "first", "blank"}, 0, Indent},
      {"int", {"default", "base"}, 0, ToInteger},
      {"lower", {}, 0, WithCase<LetterCase::kLower>},
      {"replace", {"old", "new", "count"}, 2, ReplaceIn},
      {"round", {"precision", "method"}, 0, Round},
      {"safe", {}, 0, Safe},
      {"string", {}, 0, ToString},
      {"title", {}, 0, Title},
      {"tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0, ToJsonText},
      {"trim", {"chars"}, 0, Trim},
      {"truncate", {"length", "killwords", "end", "leeway"}, 0, Truncate},
      {"upper", {}, 0, WithCase<LetterCase::kUpper>},
  };
  return table;
}

const JinjaBuiltin* FindJinjaFilter(absl::string_view name) {
  const JinjaBuiltin* filter = FindBuiltin(TextFilters(), name);
  return filter != nullptr ? filter : FindBuiltin(SequenceFilters(), name);
}

}  // namespace nightshift
