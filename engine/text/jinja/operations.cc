#include "engine/text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/text_operations.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// Elements of a list for one step: copying one is far cheaper than evaluating a node.
constexpr size_t kElementsPerStep = 16;
// What one append costs beside its bytes.
constexpr size_t kBytesPerAppend = 32;

absl::Status SpendElements(size_t count, JinjaBudget& budget) {
  return budget.SpendSteps(1 + count / kElementsPerStep);
}

absl::Status UseOfUndefined(const JinjaValue& value) {
  return absl::InvalidArgumentError(value.undefined_what());
}

const char* SymbolOf(JinjaOperator op) {
  static constexpr const char* kSymbols[] = {
      "+", "-", "*", "/", "//", "%", "**", "==", "!=", "<", "<=", ">", ">=", "in", "not in"};
  return kSymbols[static_cast<size_t>(op)];
}

absl::Status WrongTypes(absl::string_view symbol, const JinjaValue& left, const JinjaValue& right) {
  if (left.Is(Kind::kUndefined)) return UseOfUndefined(left);
  if (right.Is(Kind::kUndefined)) return UseOfUndefined(right);
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand types for ", symbol, ": ",
                                                 left.TypeName(), " and ", right.TypeName()));
}

absl::Status Overflow() {
  return absl::InvalidArgumentError("whole number beyond 64 bits");
}

absl::Status DivisionByZero() {
  return absl::InvalidArgumentError("division by zero");
}

absl::StatusOr<JinjaValue> RaiseInteger(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return JinjaValue::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return JinjaValue::Integer(result);
}

// Python rounds the quotient down, C++ towards zero.
absl::StatusOr<JinjaValue> DivideDown(int64_t left, int64_t right, bool want_remainder) {
  if (right == 0) return DivisionByZero();
  if (right == -1) {
    int64_t negated = 0;
    if (__builtin_sub_overflow(int64_t{0}, left, &negated)) return Overflow();
    return JinjaValue::Integer(want_remainder ? 0 : negated);
  }
  int64_t quotient = left / right;
  int64_t remainder = left % right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
    --quotient;
  }
  return JinjaValue::Integer(want_remainder ? remainder : quotient);
}

absl::StatusOr<JinjaValue> IntegerArithmetic(JinjaOperator op, int64_t left, int64_t right) {
  int64_t result = 0;
  bool overflow = false;
  switch (op) {
    case JinjaOperator::kAdd:
      overflow = __builtin_add_overflow(left, right, &result);
      break;
    case JinjaOperator::kSubtract:
      overflow = __builtin_sub_overflow(left, right, &result);
      break;
    case JinjaOperator::kMultiply:
      overflow = __builtin_mul_overflow(left, right, &result);
      break;
    case JinjaOperator::kDivide:
      if (right == 0) return DivisionByZero();
      return JinjaValue::Float(static_cast<double>(left) / static_cast<double>(right));
    case JinjaOperator::kFloorDivide:
      return DivideDown(left, right, /*want_remainder=*/false);
    case JinjaOperator::kRemainder:
      return DivideDown(left, right, /*want_remainder=*/true);
    default:
      return RaiseInteger(left, right);
  }
  if (overflow) return Overflow();
  return JinjaValue::Integer(result);
}

absl::StatusOr<JinjaValue> FloatArithmetic(JinjaOperator op, double left, double right) {
  switch (op) {
    case JinjaOperator::kAdd:
      return JinjaValue::Float(left + right);
    case JinjaOperator::kSubtract:
      return JinjaValue::Float(left - right);
    case JinjaOperator::kMultiply:
      return JinjaValue::Float(left * right);
    case JinjaOperator::kPower:
      return JinjaValue::Float(std::pow(left, right));
    default:
      break;
  }
  if (right == 0) return DivisionByZero();
  if (op == JinjaOperator::kDivide) return JinjaValue::Float(left / right);
  if (op == JinjaOperator::kFloorDivide) return JinjaValue::Float(std::floor(left / right));
  double remainder = std::fmod(left, right);
  if (remainder != 0 && (remainder < 0) != (right < 0)) remainder += right;
  return JinjaValue::Float(remainder);
}

// text * count and list * count.
absl::StatusOr<JinjaValue> Repeat(const JinjaValue& value, int64_t count, JinjaBudget& budget) {
  // Nothing, however often, is paid for by nobody.
  if (!value.IsTrue()) count = 0;
  if (value.Is(Kind::kText)) {
    OriginText repeated;
    for (int64_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(budget.SpendBytes(value.text().size() + kBytesPerAppend));
      repeated.Append(value.text());
    }
    return JinjaValue::Text(std::move(repeated));
  }
  std::vector<JinjaValue> repeated;
  for (int64_t i = 0; i < count; ++i) {
    RETURN_IF_ERROR(budget.SpendSteps(value.items().size()));
    repeated.insert(repeated.end(), value.items().begin(), value.items().end());
  }
  return JinjaValue::List(std::move(repeated));
}

absl::StatusOr<JinjaValue> Concatenate(const JinjaValue& left, const JinjaValue& right,
                                       JinjaBudget& budget) {
  if (left.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(left.text().size() + right.text().size()));
    OriginText joined = left.text();
    joined.Append(right.text());
    return JinjaValue::Text(std::move(joined));
  }
  RETURN_IF_ERROR(SpendElements(left.items().size() + right.items().size(), budget));
  std::vector<JinjaValue> joined = left.items();
  joined.insert(joined.end(), right.items().begin(), right.items().end());
  return JinjaValue::List(std::move(joined));
}

bool IsSequence(const JinjaValue& value) {
  return value.Is(Kind::kText) || value.Is(Kind::kList);
}

bool IsWhole(const JinjaValue& value) {
  return value.IsNumber() && !value.Is(Kind::kFloat);
}

absl::StatusOr<JinjaValue> Arithmetic(JinjaOperator op, const JinjaValue& left,
                                      const JinjaValue& right, JinjaBudget& budget) {
  if (IsWhole(left) && IsWhole(right)) {
    return IntegerArithmetic(op, left.integer(), right.integer());
  }
  if (left.IsNumber() && right.IsNumber()) {
    return FloatArithmetic(op, left.number(), right.number());
  }
  if (op == JinjaOperator::kAdd && IsSequence(left) && left.kind() == right.kind()) {
    return Concatenate(left, right, budget);
  }
  if (op == JinjaOperator::kMultiply && IsSequence(left) && IsWhole(right)) {
    return Repeat(left, right.integer(), budget);
  }
  if (op == JinjaOperator::kMultiply && IsWhole(left) && IsSequence(right)) {
    return Repeat(right, left.integer(), budget);
  }
  return WrongTypes(SymbolOf(op), left, right);
}

absl::StatusOr<bool> EqualMappings(const JinjaMapping& left, const JinjaMapping& right,
                                   JinjaBudget& budget) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    const JinjaValue* other = right.Find(key.text());
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal, Equal(value, *other, budget));
    if (!equal) return false;
  }
  return true;
}

absl::StatusOr<bool> EqualLists(const std::vector<JinjaValue>& left,
                                const std::vector<JinjaValue>& right, JinjaBudget& budget) {
  if (left.size() != right.size()) return false;
  for (size_t i = 0; i < left.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(left[i], right[i], budget));
    if (!equal) return false;
  }
  return true;
}

template <typename T>
int ThreeWay(const T& left, const T& right) {
  return left < right ? -1 : right < left ? 1 : 0;
}

// Python's index: negative counts from the end; nullopt outside.
std::optional<size_t> PlaceOf(int64_t index, int64_t length) {
  if (index < 0) index += length;
  if (index < 0 || index >= length) return std::nullopt;
  return static_cast<size_t>(index);
}

// The byte offset of character `index`, at most the length.
size_t OffsetOfCharacter(absl::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index)
    offset += NextCharacter(text, offset).length;
  return offset;
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
  // Counted by recursive loops only, which are not supported.
  if (name == "depth") return JinjaValue::Integer(1);
  if (name == "depth0") return JinjaValue::Integer(0);
  if (name == "previtem" && index > 0) return items[loop.index - 1];
  if (name == "nextitem" && index + 1 < length) return items[loop.index + 1];
  return JinjaValue::Undefined(absl::StrCat("loop has no ", name));
}

}  // namespace

absl::StatusOr<JinjaValue> ApplyOperator(JinjaOperator op, const JinjaValue& left,
                                         const JinjaValue& right, JinjaBudget& budget) {
  switch (op) {
    case JinjaOperator::kEqual:
    case JinjaOperator::kNotEqual: {
      ASSIGN_OR_RETURN(const bool equal, Equal(left, right, budget));
      return JinjaValue::Bool(equal == (op == JinjaOperator::kEqual));
    }
    case JinjaOperator::kIn:
    case JinjaOperator::kNotIn: {
      ASSIGN_OR_RETURN(const bool contained, Contains(right, left, budget));
      return JinjaValue::Bool(contained == (op == JinjaOperator::kIn));
    }
    case JinjaOperator::kLess:
    case JinjaOperator::kLessEqual:
    case JinjaOperator::kGreater:
    case JinjaOperator::kGreaterEqual: {
      ASSIGN_OR_RETURN(const int order, Compare(left, right, budget));
      const bool holds = op == JinjaOperator::kLess        ? order < 0
                         : op == JinjaOperator::kLessEqual ? order <= 0
                         : op == JinjaOperator::kGreater   ? order > 0
                                                           : order >= 0;
      return JinjaValue::Bool(holds);
    }
    default:
      return Arithmetic(op, left, right, budget);
  }
}

absl::StatusOr<JinjaValue> Negate(const JinjaValue& value) {
  if (value.Is(Kind::kFloat)) return JinjaValue::Float(-value.number());
  if (IsWhole(value)) {
    return IntegerArithmetic(JinjaOperator::kSubtract, 0, value.integer());
  }
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand for -: ", value.TypeName()));
}

absl::StatusOr<bool> Equal(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget) {
  RETURN_IF_ERROR(budget.SpendSteps(1));
  if (left.IsNumber() && right.IsNumber()) {
    if (IsWhole(left) && IsWhole(right)) return left.integer() == right.integer();
    return left.number() == right.number();
  }
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kText:
      RETURN_IF_ERROR(budget.SpendBytes(std::min(left.text().size(), right.text().size())));
      return left.text().text() == right.text().text();
    case Kind::kList:
      return EqualLists(left.items(), right.items(), budget);
    case Kind::kMapping:
      return EqualMappings(left.mapping(), right.mapping(), budget);
    case Kind::kNamespace:
      return &left.name_space() == &right.name_space();
    default:
      return false;
  }
}

absl::StatusOr<int> Compare(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget) {
  if (IsWhole(left) && IsWhole(right)) return ThreeWay(left.integer(), right.integer());
  if (left.IsNumber() && right.IsNumber()) return ThreeWay(left.number(), right.number());
  if (left.Is(Kind::kText) && right.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(std::min(left.text().size(), right.text().size())));
    // UTF-8 sorts as its characters do.
    return left.text().text().compare(right.text().text());
  }
  if (left.Is(Kind::kList) && right.Is(Kind::kList)) {
    const size_t shorter = std::min(left.items().size(), right.items().size());
    for (size_t i = 0; i < shorter; ++i) {
      ASSIGN_OR_RETURN(const bool equal, Equal(left.items()[i], right.items()[i], budget));
      if (!equal) return Compare(left.items()[i], right.items()[i], budget);
    }
    return ThreeWay(left.items().size(), right.items().size());
  }
  return WrongTypes("<", left, right);
}

absl::StatusOr<bool> Contains(const JinjaValue& container, const JinjaValue& item,
                              JinjaBudget& budget) {
  switch (container.kind()) {
    case Kind::kUndefined:
      return false;
    case Kind::kText:
      if (!item.Is(Kind::kText)) return WrongTypes("in", item, container);
      RETURN_IF_ERROR(budget.SpendBytes(container.text().size() + item.text().size()));
      return FindText(container.text().text(), item.text().text(), 0) != absl::string_view::npos;
    case Kind::kList:
      for (const JinjaValue& element : container.items()) {
        ASSIGN_OR_RETURN(const bool equal, Equal(element, item, budget));
        if (equal) return true;
      }
      return false;
    case Kind::kMapping:
      if (!item.Is(Kind::kText)) return false;
      RETURN_IF_ERROR(budget.SpendBytes(item.text().size()));
      return container.mapping().Find(item.text().text()) != nullptr;
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(container.TypeName(), " has no elements to look in"));
  }
}

absl::StatusOr<JinjaValue> GetAttribute(const JinjaValue& value, const std::string& name) {
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  const JinjaBuiltin* method = FindJinjaMethod(value.kind(), name);
  if (method != nullptr) return JinjaValue::Method(method, value);
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
  if (key.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(key.text().size()));
    const JinjaValue* found = nullptr;
    if (value.Is(Kind::kMapping)) found = value.mapping().Find(key.text().text());
    return found != nullptr ? *found : GetAttribute(value, key.text().text());
  }
  if (IsWhole(key) && IsSequence(value)) return GetAtIndex(value, key.integer(), budget);
  return JinjaValue::Undefined(
      absl::StrCat(value.TypeName(), " has no element of type ", key.TypeName()));
}

absl::StatusOr<JinjaValue> Slice(const JinjaValue& value, const JinjaSlice& slice,
                                 JinjaBudget& budget) {
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  if (!IsSequence(value)) {
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
  if (value.Is(Kind::kList)) return JinjaValue::List(std::move(taken));
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
      RETURN_IF_ERROR(SpendElements(value.items().size(), budget));
      return value.items();
    case Kind::kMapping:
      RETURN_IF_ERROR(budget.SpendSteps(value.mapping().entries.size()));
      for (const auto& [key, unused] : value.mapping().entries) {
        elements.push_back(JinjaValue::Text(key));
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
