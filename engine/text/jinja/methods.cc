// Methods of text, lists, mappings and loops.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;
using Result = absl::StatusOr<JinjaValue>;

// Each stripped character is looked up among these, so they must be few.
constexpr size_t kMaxStripBytes = 256;

Result StripText(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments,
                 StripSides sides) {
  ASSIGN_OR_RETURN(const OriginText* characters, arguments.Text(0));
  if (characters != nullptr && characters->size() > kMaxStripBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        characters->size(), " bytes of characters to strip, at most ", kMaxStripBytes));
  }
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  return JinjaValue::Text(Strip(self.text(), characters, sides));
}

Result StripBoth(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return StripText(context, self, arguments, {});
}

Result StripLeft(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return StripText(context, self, arguments, {.right = false});
}

Result StripRight(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return StripText(context, self, arguments, {.left = false});
}

Result SplitWith(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments,
                 bool from_right) {
  ASSIGN_OR_RETURN(const OriginText* separator, arguments.Text(0));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Integer(1, -1));
  ASSIGN_OR_RETURN(std::vector<OriginText> parts,
                   separator == nullptr
                       ? SplitAtSpaces(self.text(), limit, from_right, context.budget)
                       : SplitText(self.text(), *separator, limit, from_right, context.budget));
  std::vector<JinjaValue> values;
  values.reserve(parts.size());
  for (OriginText& part : parts)
    values.push_back(JinjaValue::Text(std::move(part)));
  return JinjaValue::List(std::move(values));
}

Result Split(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return SplitWith(context, self, arguments, /*from_right=*/false);
}

Result SplitFromRight(JinjaContext& context, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return SplitWith(context, self, arguments, /*from_right=*/true);
}

// startswith and endswith: one text, or a list of which any may hold.
Result HasAffix(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments,
                bool at_end) {
  std::vector<JinjaValue> affixes = {arguments[0]};
  if (arguments[0].Is(Kind::kList)) affixes = arguments[0].items();
  const std::string& text = self.text().text();
  for (const JinjaValue& affix : affixes) {
    if (!affix.Is(Kind::kText)) {
      return absl::InvalidArgumentError(absl::StrCat("text wanted, found ", affix.TypeName()));
    }
    const std::string& wanted = affix.text().text();
    RETURN_IF_ERROR(context.budget.SpendSteps(1));
    RETURN_IF_ERROR(context.budget.SpendBytes(wanted.size()));
    if (wanted.size() > text.size()) continue;
    const size_t place = at_end ? text.size() - wanted.size() : 0;
    if (text.compare(place, wanted.size(), wanted) == 0) return JinjaValue::Bool(true);
  }
  return JinjaValue::Bool(false);
}

Result StartsWith(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return HasAffix(context, self, arguments, /*at_end=*/false);
}

Result EndsWith(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return HasAffix(context, self, arguments, /*at_end=*/true);
}

template <LetterCase letter_case>
Result WithCase(JinjaContext& context, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  return JinjaValue::Text(ChangeCase(self.text(), letter_case));
}

Result ReplaceText(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* old, arguments.Text(0));
  ASSIGN_OR_RETURN(const OriginText* replacement, arguments.Text(1));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Integer(2, -1));
  if (old == nullptr || replacement == nullptr) return absl::InvalidArgumentError("text wanted");
  ASSIGN_OR_RETURN(OriginText text,
                   Replace(self.text(), *old, *replacement, limit, context.budget));
  return JinjaValue::Text(std::move(text));
}

Result Find(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* wanted, arguments.Text(0));
  if (wanted == nullptr) return absl::InvalidArgumentError("text wanted");
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size() + wanted->size()));
  const absl::string_view text = self.text().text();
  const size_t found = FindText(text, wanted->text(), 0);
  if (found == absl::string_view::npos) return JinjaValue::Integer(-1);
  return JinjaValue::Integer(CountCharacters(text.substr(0, found)));
}

Result CountInText(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* wanted, arguments.Text(0));
  if (wanted == nullptr) return absl::InvalidArgumentError("text wanted");
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size() + wanted->size()));
  const absl::string_view text = self.text().text();
  if (wanted->empty()) return JinjaValue::Integer(CountCharacters(text) + 1);
  int64_t count = 0;
  for (size_t found = FindText(text, wanted->text(), 0); found != absl::string_view::npos;
       found = FindText(text, wanted->text(), found + wanted->size())) {
    ++count;
  }
  return JinjaValue::Integer(count);
}

Result JoinWith(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> parts, Elements(arguments[0], context.budget));
  OriginText joined;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].Is(Kind::kText)) {
      return absl::InvalidArgumentError(
          absl::StrCat("element ", i, ": text wanted, found ", parts[i].TypeName()));
    }
    RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size() + parts[i].text().size()));
    if (i > 0) joined.Append(self.text());
    joined.Append(parts[i].text());
  }
  return JinjaValue::Text(std::move(joined));
}

Result CountInList(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  int64_t count = 0;
  for (const JinjaValue& item : self.items()) {
    ASSIGN_OR_RETURN(const bool equal, Equal(item, arguments[0], context.budget));
    count += equal ? 1 : 0;
  }
  return JinjaValue::Integer(count);
}

Result Get(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* key, arguments.Text(0));
  const JinjaValue* found = nullptr;
  if (key != nullptr) {
    RETURN_IF_ERROR(context.budget.SpendBytes(key->size()));
    found = self.mapping().Find(key->text());
  }
  if (found != nullptr) return *found;
  return arguments[1].Is(Kind::kUndefined) ? JinjaValue::None() : arguments[1];
}

Result Items(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendSteps(self.mapping().entries.size()));
  std::vector<JinjaValue> pairs;
  for (const auto& [key, value] : self.mapping().entries) {
    ASSIGN_OR_RETURN(JinjaValue pair, JinjaValue::List({JinjaValue::Text(key), value}));
    pairs.push_back(std::move(pair));
  }
  return JinjaValue::List(std::move(pairs));
}

Result Keys(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> keys, Elements(self, context.budget));
  return JinjaValue::List(std::move(keys));
}

Result Values(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendSteps(self.mapping().entries.size()));
  std::vector<JinjaValue> values;
  for (const auto& [key, value] : self.mapping().entries)
    values.push_back(value);
  return JinjaValue::List(std::move(values));
}

Result Cycle(JinjaContext& /*context*/, const JinjaValue& self, const JinjaArguments& arguments) {
  const std::vector<JinjaValue>& values = arguments.rest.positional;
  if (values.empty()) return absl::InvalidArgumentError("no values to cycle through");
  return values[self.loop().index % values.size()];
}

const std::vector<JinjaBuiltin>& TextMethods() {
  static const std::vector<JinjaBuiltin> table = {
      {"capitalize", {}, 0, WithCase<LetterCase::kCapital>},
      {"count", {"sub"}, 1, CountInText},
      {"endswith", {"suffix"}, 1, EndsWith},
      {"find", {"sub"}, 1, Find},
      {"join", {"iterable"}, 1, JoinWith},
      {"lower", {}, 0, WithCase<LetterCase::kLower>},
      {"lstrip", {"chars"}, 0, StripLeft},
      {"replace", {"old", "new", "count"}, 2, ReplaceText},
      {"rsplit", {"sep", "maxsplit"}, 0, SplitFromRight},
      {"rstrip", {"chars"}, 0, StripRight},
      {"split", {"sep", "maxsplit"}, 0, Split},
      {"startswith", {"prefix"}, 1, StartsWith},
      {"strip", {"chars"}, 0, StripBoth},
      {"title", {}, 0, WithCase<LetterCase::kTitle>},
      {"upper", {}, 0, WithCase<LetterCase::kUpper>},
  };
  return table;
}

const std::vector<JinjaBuiltin>& ListMethods() {
  static const std::vector<JinjaBuiltin> table = {{"count", {"value"}, 1, CountInList}};
  return table;
}

const std::vector<JinjaBuiltin>& MappingMethods() {
  static const std::vector<JinjaBuiltin> table = {
      {"get", {"key", "default"}, 1, Get},
      {"items", {}, 0, Items},
      {"keys", {}, 0, Keys},
      {"values", {}, 0, Values},
  };
  return table;
}

const std::vector<JinjaBuiltin>& LoopMethods() {
  static const std::vector<JinjaBuiltin> table = {{"cycle", {"*"}, 0, Cycle}};
  return table;
}

}  // namespace

const JinjaBuiltin* FindJinjaMethod(JinjaValue::Kind kind, absl::string_view name) {
  switch (kind) {
    case Kind::kText:
      return FindBuiltin(TextMethods(), name);
    case Kind::kList:
      return FindBuiltin(ListMethods(), name);
    case Kind::kMapping:
      return FindBuiltin(MappingMethods(), name);
    case Kind::kLoop:
      return FindBuiltin(LoopMethods(), name);
    default:
      return nullptr;
  }
}

}  // namespace nightshift
