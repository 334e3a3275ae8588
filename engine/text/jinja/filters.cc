// Filters of chat templates: {{ value | name(arguments) }}.
#include <charconv>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;
using Result = absl::StatusOr<JinjaValue>;

// A filter that is the method of the value as text.
Result CallTextMethod(const char* name, JinjaContext& context, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(OriginText text, ToText(self, context.budget));
  return FindJinjaMethod(Kind::kText, name)
      ->run(context, JinjaValue::Text(std::move(text)), arguments);
}

Result Trim(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return CallTextMethod("strip", context, self, arguments);
}

Result Upper(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return CallTextMethod("upper", context, self, arguments);
}

Result Lower(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return CallTextMethod("lower", context, self, arguments);
}

Result Capitalize(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return CallTextMethod("capitalize", context, self, arguments);
}

Result ReplaceIn(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return CallTextMethod("replace", context, self, arguments);
}

Result LengthOf(JinjaContext& context, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const int64_t length, Length(self, context.budget));
  return JinjaValue::Integer(length);
}

Result First(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  if (elements.empty()) return JinjaValue::Undefined("first of nothing");
  return elements.front();
}

Result Last(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  if (elements.empty()) return JinjaValue::Undefined("last of nothing");
  return elements.back();
}

Result Join(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(self, context.budget));
  ASSIGN_OR_RETURN(const OriginText separator, ToText(arguments[0], context.budget));
  OriginText joined;
  for (size_t i = 0; i < elements.size(); ++i) {
    JinjaValue element = elements[i];
    if (arguments.Has(1)) {
      ASSIGN_OR_RETURN(element, GetItem(element, arguments[1], context.budget));
    }
    ASSIGN_OR_RETURN(const OriginText text, ToText(element, context.budget));
    RETURN_IF_ERROR(context.budget.SpendBytes(separator.size()));
    if (i > 0) joined.Append(separator);
    joined.Append(text);
  }
  return JinjaValue::Text(std::move(joined));
}

Result Default(JinjaContext& /*context*/, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const bool for_false, arguments.Bool(1, false));
  const bool absent = self.Is(Kind::kUndefined) || (for_false && !self.IsTrue());
  if (!absent) return self;
  return arguments[0].Is(Kind::kUndefined) ? JinjaValue::Text("", true) : arguments[0];
}

// As transformers defines it: Python's json.dumps without escapes for what is not ASCII.
Result ToJsonText(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  std::optional<int64_t> indent;
  if (arguments.Has(0)) {
    ASSIGN_OR_RETURN(indent, arguments.Integer(0, 0));
  }
  ASSIGN_OR_RETURN(OriginText text, ToJson(self, indent, context.budget));
  return JinjaValue::Text(std::move(text));
}

Result ToString(JinjaContext& context, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(OriginText text, ToText(self, context.budget));
  return JinjaValue::Text(std::move(text));
}

// The number that text spells with nothing but white space around it.
template <typename Number>
std::optional<Number> ParseNumber(const JinjaValue& value) {
  const OriginText stripped = Strip(value.text(), nullptr, {});
  const std::string& text = stripped.text();
  const char* first = text.data();
  const char* last = first + text.size();
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') ++first;
  Number number{};
  const auto end = std::from_chars(first, last, number);
  if (end.ec != std::errc() || end.ptr != last) return std::nullopt;
  return number;
}

std::optional<double> ToDouble(const JinjaValue& value) {
  if (value.IsNumber()) return value.number();
  return value.Is(Kind::kText) ? ParseNumber<double>(value) : std::nullopt;
}

Result ToInteger(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.IsNumber() && !self.Is(Kind::kFloat)) return JinjaValue::Integer(self.integer());
  if (self.Is(Kind::kText)) {
    RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
    const std::optional<int64_t> number = ParseNumber<int64_t>(self);
    if (number.has_value()) return JinjaValue::Integer(*number);
  }
  const std::optional<double> number = ToDouble(self);
  // 2^63, beyond which the conversion has no meaning.
  constexpr double kLimit = 9223372036854775808.0;
  if (number.has_value() && *number > -kLimit && *number < kLimit) {
    return JinjaValue::Integer(static_cast<int64_t>(*number));
  }
  return arguments[0].Is(Kind::kUndefined) ? JinjaValue::Integer(0) : arguments[0];
}

Result ToFloat(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.Is(Kind::kText)) RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  const std::optional<double> number = ToDouble(self);
  if (number.has_value()) return JinjaValue::Float(*number);
  return arguments[0].Is(Kind::kUndefined) ? JinjaValue::Float(0) : arguments[0];
}

Result ToList(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> elements, Elements(self, context.budget));
  return JinjaValue::List(std::move(elements));
}

Result Reverse(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  return Slice(self, {.start = std::nullopt, .stop = std::nullopt, .step = -1}, context.budget);
}

Result ItemsOf(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.Is(Kind::kUndefined)) return JinjaValue::List({});
  if (!self.Is(Kind::kMapping)) {
    return absl::InvalidArgumentError(absl::StrCat("a mapping wanted, found ", self.TypeName()));
  }
  return FindJinjaMethod(Kind::kMapping, "items")->run(context, self, arguments);
}

Result Absolute(JinjaContext& /*context*/, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  if (!self.IsNumber()) {
    return absl::InvalidArgumentError(absl::StrCat("a number wanted, found ", self.TypeName()));
  }
  return self.number() < 0 ? Negate(self) : self;
}

// Output is never escaped here, so marking it as safe changes nothing.
Result Safe(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return ToString(context, self, arguments);
}

const std::vector<JinjaBuiltin>& Filters() {
  static const std::vector<JinjaBuiltin> table = {
      {"abs", {}, 0, Absolute},
      {"capitalize", {}, 0, Capitalize},
      {"count", {}, 0, LengthOf},
      {"d", {"default_value", "boolean"}, 0, Default},
      {"default", {"default_value", "boolean"}, 0, Default},
      {"first", {}, 0, First},
      {"float", {"default"}, 0, ToFloat},
      {"int", {"default"}, 0, ToInteger},
      {"items", {}, 0, ItemsOf},
      {"join", {"d", "attribute"}, 0, Join},
      {"last", {}, 0, Last},
      {"length", {}, 0, LengthOf},
      {"list", {}, 0, ToList},
      {"lower", {}, 0, Lower},
      {"replace", {"old", "new", "count"}, 2, ReplaceIn},
      {"reverse", {}, 0, Reverse},
      {"safe", {}, 0, Safe},
      {"string", {}, 0, ToString},
      {"tojson", {"indent"}, 0, ToJsonText},
      {"trim", {"chars"}, 0, Trim},
      {"upper", {}, 0, Upper},
  };
  return table;
}

}  // namespace

const JinjaBuiltin* FindJinjaFilter(absl::string_view name) {
  return FindBuiltin(Filters(), name);
}

}  // namespace nightshift
