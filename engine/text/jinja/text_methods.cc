// Methods of text: Python's str, as far as templates may use it.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/text_operations.h"
#include "engine/text/text_range.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;
using Result = absl::StatusOr<JinjaValue>;

Result TextList(std::vector<OriginText> parts, SequenceKind sequence) {
  std::vector<JinjaValue> values;
  values.reserve(parts.size());
  for (OriginText& part : parts)
    values.push_back(JinjaValue::Text(std::move(part)));
  return JinjaValue::List(std::move(values), sequence);
}

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
  return TextList(std::move(parts), SequenceKind::kList);
}

Result Split(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return SplitWith(context, self, arguments, /*from_right=*/false);
}

Result SplitFromRight(JinjaContext& context, const JinjaValue& self,
                      const JinjaArguments& arguments) {
  return SplitWith(context, self, arguments, /*from_right=*/true);
}

// The bytes between the arguments start and end, the second and third; nothing when start is behind
// the text. Like Python, negative ones count from the end.
absl::StatusOr<std::optional<TextRange>> PartOf(JinjaContext& context, const JinjaValue& self,
                                                const JinjaArguments& arguments) {
  const absl::string_view text = self.text().text();
  if (!arguments.Has(1) && !arguments.Has(2)) {
    return std::optional<TextRange>({.first = 0, .length = text.size()});
  }
  RETURN_IF_ERROR(context.budget.SpendBytes(2 * text.size()));
  const int64_t length = CountCharacters(text);
  ASSIGN_OR_RETURN(int64_t start, arguments.Integer(1, 0));
  ASSIGN_OR_RETURN(int64_t end, arguments.Integer(2, length));
  if (start < 0) start = std::max<int64_t>(start + length, 0);
  end = std::min(end < 0 ? std::max<int64_t>(end + length, 0) : end, length);
  if (start > length || end < start) return std::optional<TextRange>();
  const size_t first = OffsetOfCharacter(text, start);
  return std::optional<TextRange>(
      {.first = first, .length = OffsetOfCharacter(text.substr(first), end - start)});
}

// startswith and endswith: one text, or a tuple of which any may hold.
Result HasAffix(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments,
                bool at_end) {
  std::vector<JinjaValue> affixes = {arguments[0]};
  if (arguments[0].IsSequence(SequenceKind::kTuple)) affixes = arguments[0].items();
  ASSIGN_OR_RETURN(const std::optional<TextRange> part, PartOf(context, self, arguments));
  if (!part.has_value()) return JinjaValue::Bool(false);
  const absl::string_view text =
      absl::string_view(self.text().text()).substr(part->first, part->length);
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
  ASSIGN_OR_RETURN(const OriginText* old, arguments.RequiredText(0));
  ASSIGN_OR_RETURN(const OriginText* replacement, arguments.RequiredText(1));
  ASSIGN_OR_RETURN(const int64_t limit, arguments.Integer(2, -1));
  ASSIGN_OR_RETURN(OriginText text,
                   Replace(self.text(), *old, *replacement, limit, context.budget));
  return JinjaValue::Text(std::move(text));
}

// The place of a text in characters, -1 where it does not occur.
absl::StatusOr<int64_t> PlaceOfText(JinjaContext& context, const JinjaValue& self,
                                    const JinjaArguments& arguments, bool from_right) {
  ASSIGN_OR_RETURN(const OriginText* wanted, arguments.RequiredText(0));
  RETURN_IF_ERROR(context.budget.SpendBytes(2 * self.text().size() + wanted->size()));
  ASSIGN_OR_RETURN(const std::optional<TextRange> part, PartOf(context, self, arguments));
  if (!part.has_value()) return -1;
  const absl::string_view text = self.text().text();
  const absl::string_view within = text.substr(part->first, part->length);
  size_t found = FindText(within, wanted->text(), 0);
  if (from_right && found != absl::string_view::npos) found = LastPlace(within, wanted->text());
  if (found == absl::string_view::npos) return -1;
  return CountCharacters(text.substr(0, part->first + found));
}

template <bool from_right, bool must_be_there>
Result Find(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t place, PlaceOfText(context, self, arguments, from_right));
  if (must_be_there && place < 0) return absl::InvalidArgumentError("the text does not occur");
  return JinjaValue::Integer(place);
}

Result CountInText(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* wanted, arguments.RequiredText(0));
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size() + wanted->size()));
  ASSIGN_OR_RETURN(const std::optional<TextRange> part, PartOf(context, self, arguments));
  if (!part.has_value()) return JinjaValue::Integer(0);
  const absl::string_view text =
      absl::string_view(self.text().text()).substr(part->first, part->length);
  if (wanted->empty()) return JinjaValue::Integer(CountCharacters(text) + 1);
  int64_t count = 0;
  for (size_t found = FindText(text, wanted->text(), 0); found != absl::string_view::npos;
       found = FindText(text, wanted->text(), found + wanted->size())) {
    ++count;
  }
  return JinjaValue::Integer(count);
}

// partition and rpartition: what stands before, the separator, what stands behind.
template <bool from_right>
Result Partition(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* separator, arguments.RequiredText(0));
  ASSIGN_OR_RETURN(std::vector<OriginText> parts,
                   SplitText(self.text(), *separator, 1, from_right, context.budget));
  if (parts.size() == 2) {
    parts.insert(parts.begin() + 1, *separator);
  } else {
    parts.insert(from_right ? parts.begin() : parts.end(), 2, OriginText());
  }
  return TextList(std::move(parts), SequenceKind::kTuple);
}

Result SplitLines(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const bool keep_ends, arguments.Bool(0, false));
  ASSIGN_OR_RETURN(std::vector<OriginText> lines,
                   SplitIntoLines(self.text(), keep_ends, context.budget));
  return TextList(std::move(lines), SequenceKind::kList);
}

template <bool at_end>
Result RemoveAffix(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText* affix, arguments.RequiredText(0));
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size() + affix->size()));
  const std::string& text = self.text().text();
  if (affix->size() > text.size()) return self;
  const size_t rest = text.size() - affix->size();
  if (text.compare(at_end ? rest : 0, affix->size(), affix->text()) != 0) return self;
  return JinjaValue::Text(self.text().Substring(at_end ? 0 : affix->size(), rest));
}

// ljust, rjust and center, by what share of the missing characters comes first.
enum class Alignment : uint8_t { kLeft, kRight, kCenter };

template <Alignment alignment>
Result Align(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 0));
  ASSIGN_OR_RETURN(const OriginText* given, arguments.Text(1));
  const OriginText fill = given == nullptr ? OriginText(" ", /*trusted=*/false) : *given;
  if (CountCharacters(fill.text()) != 1) {
    return absl::InvalidArgumentError("one character to fill with wanted");
  }
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  const int64_t missing = std::max<int64_t>(width - CountCharacters(self.text().text()), 0);
  RETURN_IF_ERROR(
      context.budget.SpendBytes(std::min(static_cast<size_t>(missing), SIZE_MAX / 4) * 4));
  // Python's str.center: the odd one goes left when the width is odd.
  const int64_t left = alignment == Alignment::kLeft    ? 0
                       : alignment == Alignment::kRight ? missing
                                                        : missing / 2 + (missing & width & 1);
  OriginText aligned;
  for (int64_t i = 0; i < left; ++i)
    aligned.Append(fill);
  aligned.Append(self.text());
  for (int64_t i = left; i < missing; ++i)
    aligned.Append(fill);
  return JinjaValue::Text(std::move(aligned));
}

Result FillWithZeros(JinjaContext& context, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t width, arguments.Integer(0, 0));
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  const OriginText& text = self.text();
  const int64_t missing = std::max<int64_t>(width - CountCharacters(text.text()), 0);
  RETURN_IF_ERROR(context.budget.SpendBytes(static_cast<size_t>(missing)));
  const bool has_sign = !text.empty() && (text.text()[0] == '-' || text.text()[0] == '+');
  OriginText filled = text.Substring(0, has_sign ? 1 : 0);
  filled.Append(std::string(static_cast<size_t>(missing), '0'), /*trusted=*/false);
  filled.Append(text, filled.size() - static_cast<size_t>(missing),
                text.size() - (has_sign ? 1 : 0));
  return JinjaValue::Text(std::move(filled));
}

template <CharacterClass wanted>
Result HasOnly(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  return JinjaValue::Bool(ConsistsOf(self.text().text(), wanted));
}

template <bool upper>
Result HasOneCase(JinjaContext& context, const JinjaValue& self,
                  const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendBytes(self.text().size()));
  return JinjaValue::Bool(IsOfOneCase(self.text().text(), upper));
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

}  // namespace

const std::vector<JinjaBuiltin>& TextMethods() {
  static const std::vector<JinjaBuiltin> table = {
      {"capitalize", {}, 0, WithCase<LetterCase::kCapital>},
      {"center", {"width", "fillchar"}, 1, Align<Alignment::kCenter>},
      {"count", {"sub", "start", "end"}, 1, CountInText},
      {"endswith", {"suffix", "start", "end"}, 1, EndsWith},
      {"find", {"sub", "start", "end"}, 1, Find<false, false>},
      {"index", {"sub", "start", "end"}, 1, Find<false, true>},
      {"isalnum", {}, 0, HasOnly<CharacterClass::kLetterOrNumber>},
      {"isalpha", {}, 0, HasOnly<CharacterClass::kLetter>},
      {"isdecimal", {}, 0, HasOnly<CharacterClass::kDecimal>},
      {"isdigit", {}, 0, HasOnly<CharacterClass::kDigit>},
      {"islower", {}, 0, HasOneCase<false>},
      {"isspace", {}, 0, HasOnly<CharacterClass::kSpace>},
      {"isupper", {}, 0, HasOneCase<true>},
      {"join", {"iterable"}, 1, JoinWith},
      {"ljust", {"width", "fillchar"}, 1, Align<Alignment::kLeft>},
      {"lower", {}, 0, WithCase<LetterCase::kLower>},
      {"lstrip", {"chars"}, 0, StripLeft},
      {"partition", {"sep"}, 1, Partition<false>},
      {"removeprefix", {"prefix"}, 1, RemoveAffix<false>},
      {"removesuffix", {"suffix"}, 1, RemoveAffix<true>},
      {"replace", {"old", "new", "count"}, 2, ReplaceText},
      {"rfind", {"sub", "start", "end"}, 1, Find<true, false>},
      {"rindex", {"sub", "start", "end"}, 1, Find<true, true>},
      {"rjust", {"width", "fillchar"}, 1, Align<Alignment::kRight>},
      {"rpartition", {"sep"}, 1, Partition<true>},
      {"rsplit", {"sep", "maxsplit"}, 0, SplitFromRight},
      {"rstrip", {"chars"}, 0, StripRight},
      {"split", {"sep", "maxsplit"}, 0, Split},
      {"splitlines", {"keepends"}, 0, SplitLines},
      {"startswith", {"prefix", "start", "end"}, 1, StartsWith},
      {"strip", {"chars"}, 0, StripBoth},
      {"swapcase", {}, 0, WithCase<LetterCase::kSwapped>},
      {"title", {}, 0, WithCase<LetterCase::kTitle>},
      {"upper", {}, 0, WithCase<LetterCase::kUpper>},
      {"zfill", {"width"}, 1, FillWithZeros},
  };
  return table;
}

}  // namespace nightshift
