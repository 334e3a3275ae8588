#include "engine/text/jinja/operations.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/percent_format.h"
#include "engine/text/jinja/text_operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// What one append costs beside its bytes.
constexpr size_t kBytesPerAppend = 32;

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

// Complex results, which Python gives, are refused.
absl::StatusOr<JinjaValue> RaiseFloat(double base, double exponent) {
  if (base == 0 && exponent < 0) return DivisionByZero();
  const double result = std::pow(base, exponent);
  const bool is_regular = std::isfinite(base) && std::isfinite(exponent);
  if (is_regular && !std::isfinite(result)) {
    return absl::InvalidArgumentError("the power is not a real number that a double holds");
  }
  return JinjaValue::Float(result);
}

// Python's float division: the quotient is rounded down from the exact one, and the remainder has
// the sign of the divisor.
JinjaValue DivideFloatDown(double left, double right, bool want_remainder) {
  double remainder = std::fmod(left, right);
  double quotient = (left - remainder) / right;
  if (remainder != 0 && (remainder < 0) != (right < 0)) {
    remainder += right;
    quotient -= 1;
  }
  if (remainder == 0) remainder = std::copysign(0.0, right);
  if (want_remainder) return JinjaValue::Float(remainder);
  if (quotient == 0) return JinjaValue::Float(std::copysign(0.0, left / right));
  const double whole = std::floor(quotient);
  return JinjaValue::Float(quotient - whole > 0.5 ? whole + 1 : whole);
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
      return RaiseFloat(left, right);
    default:
      break;
  }
  if (right == 0) return DivisionByZero();
  if (op == JinjaOperator::kDivide) return JinjaValue::Float(left / right);
  return DivideFloatDown(left, right, op == JinjaOperator::kRemainder);
}

// `count` times `cost`, or what no budget holds.
size_t Product(size_t count, size_t cost) {
  size_t product = 0;
  return __builtin_mul_overflow(count, cost, &product) ? SIZE_MAX : product;
}

// text * count and list * count, paid for before anything is made.
absl::StatusOr<JinjaValue> Repeat(const JinjaValue& value, int64_t count, JinjaBudget& budget) {
  // Nothing, however often, is paid for by nobody.
  if (!value.IsTrue() || count < 0) count = 0;
  const auto times = static_cast<size_t>(count);
  if (value.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(Product(times, value.text().size() + kBytesPerAppend)));
    OriginText repeated;
    for (size_t i = 0; i < times; ++i)
      repeated.Append(value.text());
    return JinjaValue::Text(std::move(repeated));
  }
  RETURN_IF_ERROR(budget.SpendSteps(Product(times, value.items().size())));
  std::vector<JinjaValue> repeated;
  for (size_t i = 0; i < times; ++i)
    repeated.insert(repeated.end(), value.items().begin(), value.items().end());
  return JinjaValue::List(std::move(repeated), value.sequence());
}

absl::StatusOr<JinjaValue> Concatenate(const JinjaValue& left, const JinjaValue& right,
                                       JinjaBudget& budget) {
  if (left.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(left.text().size() + right.text().size()));
    OriginText joined = left.text();
    joined.Append(right.text());
    return JinjaValue::Text(std::move(joined));
  }
  RETURN_IF_ERROR(budget.SpendElements(left.items().size() + right.items().size()));
  std::vector<JinjaValue> joined = left.items();
  joined.insert(joined.end(), right.items().begin(), right.items().end());
  return JinjaValue::List(std::move(joined), left.sequence());
}

// What can be added up and repeated.
bool IsRepeatable(const JinjaValue& value) {
  return value.Is(Kind::kText) || value.IsSequence(SequenceKind::kList) ||
         value.IsSequence(SequenceKind::kTuple);
}

bool IsSameSequence(const JinjaValue& left, const JinjaValue& right) {
  return left.kind() == right.kind() &&
         (!left.Is(Kind::kList) || left.sequence() == right.sequence());
}

absl::StatusOr<JinjaValue> Arithmetic(JinjaOperator op, const JinjaValue& left,
                                      const JinjaValue& right, JinjaBudget& budget) {
  if (left.IsWhole() && right.IsWhole()) {
    return IntegerArithmetic(op, left.integer(), right.integer());
  }
  if (left.IsNumber() && right.IsNumber()) {
    return FloatArithmetic(op, left.number(), right.number());
  }
  if (op == JinjaOperator::kAdd && IsRepeatable(left) && IsSameSequence(left, right)) {
    return Concatenate(left, right, budget);
  }
  if (op == JinjaOperator::kMultiply && IsRepeatable(left) && right.IsWhole()) {
    return Repeat(left, right.integer(), budget);
  }
  if (op == JinjaOperator::kMultiply && left.IsWhole() && IsRepeatable(right)) {
    return Repeat(right, left.integer(), budget);
  }
  if (op == JinjaOperator::kRemainder && left.Is(Kind::kText)) {
    ASSIGN_OR_RETURN(OriginText text, FormatPercent(left.text(), right, budget));
    return JinjaValue::Text(std::move(text));
  }
  return WrongTypes(SymbolOf(op), left, right);
}

absl::StatusOr<bool> EqualMappings(const JinjaMapping& left, const JinjaMapping& right,
                                   JinjaBudget& budget) {
  if (left.entries.size() != right.entries.size()) return false;
  for (const auto& [key, value] : left.entries) {
    ASSIGN_OR_RETURN(const JinjaValue* other, right.Find(key));
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
  if (value.IsWhole()) {
    return IntegerArithmetic(JinjaOperator::kSubtract, 0, value.integer());
  }
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand for -: ", value.TypeName()));
}

absl::StatusOr<JinjaValue> Plus(const JinjaValue& value) {
  if (value.Is(Kind::kFloat)) return value;
  if (value.IsWhole()) return JinjaValue::Integer(value.integer());
  if (value.Is(Kind::kUndefined)) return UseOfUndefined(value);
  return absl::InvalidArgumentError(absl::StrCat("unsupported operand for +: ", value.TypeName()));
}

absl::Status UseOfUndefined(const JinjaValue& value) {
  return absl::InvalidArgumentError(value.undefined_what());
}

absl::StatusOr<bool> Equal(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget) {
  RETURN_IF_ERROR(budget.SpendSteps(1));
  if (left.IsNumber() && right.IsNumber()) {
    if (left.IsWhole() && right.IsWhole()) return left.integer() == right.integer();
    return left.number() == right.number();
  }
  if (!IsSameSequence(left, right)) return false;
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
    case Kind::kIterator:
      return &left.iterator() == &right.iterator();
    case Kind::kNamespace:
      return &left.name_space() == &right.name_space();
    case Kind::kLoop:
      return &left.loop() == &right.loop();
    case Kind::kCallable:
      return left.callable().self == nullptr && right.callable().self == nullptr &&
             left.callable().builtin == right.callable().builtin &&
             left.callable().macro == right.callable().macro;
    default:
      return false;
  }
}

absl::StatusOr<int> Compare(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget) {
  if (left.IsWhole() && right.IsWhole()) return ThreeWay(left.integer(), right.integer());
  if (left.IsNumber() && right.IsNumber()) return ThreeWay(left.number(), right.number());
  if (left.Is(Kind::kText) && right.Is(Kind::kText)) {
    RETURN_IF_ERROR(budget.SpendBytes(std::min(left.text().size(), right.text().size())));
    // UTF-8 sorts as its characters do.
    return left.text().text().compare(right.text().text());
  }
  if (left.Is(Kind::kList) && IsRepeatable(left) && IsSameSequence(left, right)) {
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
    case Kind::kIterator: {
      JinjaIterator& iterator = container.iterator();
      while (iterator.next < iterator.items.size()) {
        ASSIGN_OR_RETURN(const bool equal, Equal(iterator.items[iterator.next++], item, budget));
        if (equal) return true;
      }
      RETURN_IF_ERROR(iterator.end);
      return false;
    }
    case Kind::kMapping: {
      if (item.Is(Kind::kUndefined)) return false;
      if (item.Is(Kind::kText)) RETURN_IF_ERROR(budget.SpendBytes(item.text().size()));
      ASSIGN_OR_RETURN(const JinjaValue* found, container.mapping().Find(item));
      return found != nullptr;
    }
    default:
      return absl::InvalidArgumentError(
          absl::StrCat(container.TypeName(), " has no elements to look in"));
  }
}

absl::StatusOr<std::vector<JinjaValue>> SortBy(std::vector<JinjaValue> items,
                                               const std::vector<JinjaValue>& keys, bool descending,
                                               JinjaBudget& budget) {
  // Merges runs of doubling length: std::stable_sort cannot stop at a comparison that fails.
  std::vector<size_t> order(items.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::vector<size_t> merged(items.size());
  for (size_t width = 1; width < order.size(); width *= 2) {
    for (size_t begin = 0; begin < order.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, order.size());
      const size_t end = std::min(begin + 2 * width, order.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t place = begin; place < end; ++place) {
        bool take_right = left == middle;
        if (left < middle && right < end) {
          RETURN_IF_ERROR(budget.SpendSteps(1));
          ASSIGN_OR_RETURN(const int comparison,
                           Compare(keys[order[right]], keys[order[left]], budget));
          take_right = descending ? comparison > 0 : comparison < 0;
        }
        merged[place] = take_right ? order[right++] : order[left++];
      }
    }
    order.swap(merged);
  }
  std::vector<JinjaValue> sorted;
  sorted.reserve(items.size());
  for (const size_t place : order)
    sorted.push_back(std::move(items[place]));
  return sorted;
}

}  // namespace nightshift
