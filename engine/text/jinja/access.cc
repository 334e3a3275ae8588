#include "engine/text/jinja/access.h"

#include <algorithm>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// What has a first, second, ... element: text and Python's sequences, but not the views of a dict.
bool IsIndexed(const JinjaValue& value) {
  return value.Is(Kind::kText) ||
         (value.Is(Kind::kList) && value.sequence() != SequenceKind::kKeys &&
          value.sequence() != SequenceKind::kValues && value.sequence() != SequenceKind::kItems);
}

// Python's index: negative counts from the end; nullopt outside.
std::optional<size_t> PlaceOf(int64_t index, int64_t length) {
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<size_t>(index);
}

absl::StatusOr<JinjaValue> GetAtIndex(const JinjaValue& value, int64_t index, JinjaBudget& budget) {
  ASSIGN_OR_RETURN(const int64_t length, Length(value, budget));
  const std::optional<size_t> place = PlaceOf(index, length);
  if (!place.has_value()) {
    return JinjaValue::Undefined(
        absl::StrCat(value.TypeName(), " of ", length, " elements has no element ", index));
  }
  if (value.Is(Kind::kList)) return value.items()[*place];
  const size_t offset = OffsetOfCharacter(value.text().text(), static_cast<int64_t>(*place));
  return JinjaValue::Text(
      value.text().Substring(offset, NextCharacter(value.text().text(), offset).length));
}

JinjaValue LoopAttribute(const JinjaLoop& loop, absl::string_view name) {
  const std::vector<JinjaValue>& items = loop.items->items();
  const auto index = static_cast<int64_t>(loop.index);
  const auto length = static_cast<int64_t>(items.size());
  if (name == "index") return JinjaValue::Integer(index + 1);
  if (name == "index0") return JinjaValue::Integer(index);
  if (name == "revindex") return JinjaValue::Integer(length - index);
  if (name == "revindex0") return JinjaValue::Integer(length - index - 1);
  if (name == "first") return JinjaValue::Bool(index == 0);
  if (name == "last") return JinjaValue::Bool(index + 1 == length);
  if (name == "length") return JinjaValue::Integer(length);
  if (name == "depth") return JinjaValue::Integer(loop.depth + 1);
  if (name == "depth0") return JinjaValue::Integer(loop.depth);
  if (name == "previtem" && index > 0) return items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return items[loop.index + 1];
  return JinjaValue::Undefined(absl::StrCat("loop has no ", name));
}

// range.start + index * range.step, modulo 2^64: an end beyond 64 bits is never shown.
int64_t ElementOf(const JinjaRange& range, int64_t index) {
  return static_cast<int64_t>(static_cast<uint64_t>(range.start) +
                              static_cast<uint64_t>(index) * static_cast<uint64_t>(range.step));
}

// Methods of Python's dict that shadow a key of that name: the sandbox forbids them.
bool IsForbidden(const std::string& name) {
  return name == "clear" || name == "fromkeys" || name == "pop" || name == "popitem" ||
         name == "setdefault" || name == "update";
}

// One part of a path.
JinjaValue PathPart(absl::string_view part) {
  int64_t index = 0;
  const bool is_index = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
    return absl::ascii_isdigit(static_cast<unsigned char>(c));
  });
  if (is_index && absl::SimpleAtoi(part, &index)) return JinjaValue::Integer(index);
  return JinjaValue::Text(part, /*trusted=*/false);
}

}  // namespace

absl::StatusOr<JinjaValue> GetAttribute(const JinjaValue& value, const std::string& name) {
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  const JinjaBuiltin* method = FindJinjaMethod(value, name);
  if (method != nullptr) return JinjaValue::Method(method, value);
  if (value.Is(Kind::kMapping) && IsForbidden(name)) {
    return JinjaValue::Undefined(absl::StrCat("dict.", name, " is not allowed in templates"));
  }
  const JinjaValue* found = nullptr;
  if (value.Is(Kind::kMapping)) found = value.mapping().Find(name);
  if (value.Is(Kind::kNamespace)) {
    const auto place = value.name_space().values.find(name);
    if (place != value.name_space().values.end()) found = &place->second;
  }
  if (found != nullptr) return *found;
  if (value.Is(Kind::kLoop)) return LoopAttribute(value.loop(), name);
  return JinjaValue::Undefined(absl::StrCat(value.TypeName(), " has no attribute '", name, "'"));
}

absl::StatusOr<JinjaValue> GetItem(const JinjaValue& value, const JinjaValue& key,
                                   JinjaBudget& budget) {
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  if (key.Is(Kind::kText)) RETURN_IF_ERROR(budget.SpendBytes(key.text().size()));
  if (value.Is(Kind::kMapping)) {
    const absl::StatusOr<const JinjaValue*> found = value.mapping().Find(key);
    if (found.ok() && *found != nullptr) return **found;
  }
  if (key.Is(Kind::kText)) return GetAttribute(value, key.text().text());
  if (key.IsWhole() && IsIndexed(value)) return GetAtIndex(value, key.integer(), budget);
  return JinjaValue::Undefined(
      absl::StrCat(value.TypeName(), " has no element of type ", key.TypeName()));
}

absl::StatusOr<JinjaValue> GetPath(const JinjaValue& value, const JinjaValue& path,
                                   const JinjaValue& absent, JinjaBudget& budget) {
  std::vector<JinjaValue> parts = {path};
  if (path.Is(Kind::kText)) {
    parts.clear();
    for (const absl::string_view part : absl::StrSplit(path.text().text(), '.'))
      parts.push_back(PathPart(part));
  }
  JinjaValue found = value;
  for (const JinjaValue& part : parts) {
    RETURN_IF_ERROR(budget.SpendSteps(1));
    ASSIGN_OR_RETURN(found, GetItem(found, part, budget));
    if (found.Is(Kind::kUndefined) && !absent.Is(Kind::kUndefined)) found = absent;
  }
  return found;
}

absl::StatusOr<JinjaValue> Slice(const JinjaValue& value, const JinjaSlice& slice,
                                 JinjaBudget& budget) {
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  if (!IsIndexed(value)) {
    return absl::InvalidArgumentError(absl::StrCat(value.TypeName(), " cannot be sliced"));
  }
  const int64_t step = slice.step;
  if (step == 0) return absl::InvalidArgumentError("slice step is zero");
  ASSIGN_OR_RETURN(const int64_t length, Length(value, budget));
  const int64_t low = step > 0 ? 0 : -1;
  const int64_t high = step > 0 ? length : length - 1;
  const auto bound = [&](std::optional<int64_t> given, int64_t absent) {
    if (!given.has_value()) return absent;
    return std::clamp(*given < 0 ? *given + length : *given, low, high);
  };
  const int64_t start = bound(slice.start, step > 0 ? low : high);
  const int64_t stop = bound(slice.stop, step > 0 ? high : low);
  if (value.Is(Kind::kText) && step == 1) {
    const absl::string_view text = value.text().text();
    const size_t first = OffsetOfCharacter(text, start);
    const size_t bytes = OffsetOfCharacter(text.substr(first), std::max<int64_t>(stop - start, 0));
    return JinjaValue::Text(value.text().Substring(first, bytes));
  }
  ASSIGN_OR_RETURN(const std::vector<JinjaValue> elements, Elements(value, budget));
  std::vector<JinjaValue> taken;
  // Not by adding up, which could overflow.
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    taken.push_back(elements[static_cast<size_t>(i)]);
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  if (value.Is(Kind::kList)) {
    return JinjaValue::List(
        std::move(taken), value.sequence(),
        {.start = ElementOf(value.range(), start),
         .stop = ElementOf(value.range(), stop),
         .step = ElementOf({.start = 0, .stop = 0, .step = step}, value.range().step)});
  }
  OriginText text;
  for (const JinjaValue& character : taken)
    text.Append(character.text());
  return JinjaValue::Text(std::move(text));
}

absl::StatusOr<std::vector<JinjaValue>> Elements(const JinjaValue& value, JinjaBudget& budget) {
  std::vector<JinjaValue> elements;
  switch (value.kind()) {
    case Kind::kUndefined:
      return elements;
    case Kind::kList:
      RETURN_IF_ERROR(budget.SpendElements(value.items().size()));
      return value.items();
    case Kind::kIterator: {
      JinjaIterator& iterator = value.iterator();
      RETURN_IF_ERROR(budget.SpendElements(iterator.items.size() - iterator.next));
      const auto first = iterator.items.begin() + static_cast<std::ptrdiff_t>(iterator.next);
      elements.assign(first, iterator.items.end());
      iterator.next = iterator.items.size();
      RETURN_IF_ERROR(std::exchange(iterator.end, absl::OkStatus()));
      return elements;
    }
    case Kind::kMapping:
      RETURN_IF_ERROR(budget.SpendSteps(value.mapping().entries.size()));
      for (const auto& [key, unused] : value.mapping().entries) {
        elements.push_back(key);
      }
      return elements;
    case Kind::kText: {
      const OriginText& text = value.text();
      ASSIGN_OR_RETURN(const int64_t length, Length(value, budget));
      RETURN_IF_ERROR(budget.SpendSteps(static_cast<size_t>(length)));
      for (size_t offset = 0; offset < text.size();) {
        const size_t bytes = NextCharacter(text.text(), offset).length;
        elements.push_back(JinjaValue::Text(text.Substring(offset, bytes)));
        offset += bytes;
      }
      return elements;
    }
    default:
      return absl::InvalidArgumentError(absl::StrCat(value.TypeName(), " is not iterable"));
  }
}

absl::StatusOr<int64_t> Length(const JinjaValue& value, JinjaBudget& budget) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kText:
      RETURN_IF_ERROR(budget.SpendBytes(value.text().size()));
      return CountCharacters(value.text().text());
    case Kind::kList:
      return static_cast<int64_t>(value.items().size());
    case Kind::kMapping:
      return static_cast<int64_t>(value.mapping().entries.size());
    default:
      return absl::InvalidArgumentError(absl::StrCat(value.TypeName(), " has no length"));
  }
}

}  // namespace nightshift
