// Jinja's tests: {{ value is name(argument) }}.
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

template <Kind kind>
Result IsKind(JinjaContext& /*context*/, const JinjaValue& self,
              const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.Is(kind));
}

Result IsDefined(JinjaContext& /*context*/, const JinjaValue& self,
                 const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(!self.Is(Kind::kUndefined));
}

Result IsNumber(JinjaContext& /*context*/, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.IsNumber());
}

// Python: what len() and indexing accept.
Result IsSequence(JinjaContext& /*context*/, const JinjaValue& self,
                  const JinjaArguments& /*arguments*/) {
  const bool is_view = self.IsSequence(SequenceKind::kKeys) ||
                       self.IsSequence(SequenceKind::kValues) ||
                       self.IsSequence(SequenceKind::kItems);
  return JinjaValue::Bool(self.Is(Kind::kText) || (self.Is(Kind::kList) && !is_view) ||
                          self.Is(Kind::kMapping) || self.Is(Kind::kUndefined));
}

Result IsIterable(JinjaContext& /*context*/, const JinjaValue& self,
                  const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.Is(Kind::kText) || self.Is(Kind::kList) ||
                          self.Is(Kind::kIterator) || self.Is(Kind::kMapping) ||
                          self.Is(Kind::kUndefined) || self.Is(Kind::kLoop));
}

// What Python could try to call, though a call of undefined fails.
Result IsCallable(JinjaContext& /*context*/, const JinjaValue& self,
                  const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.Is(Kind::kCallable) || self.Is(Kind::kUndefined) ||
                          self.Is(Kind::kLoop));
}

// Python's `is`, as far as values here have an identity: constants are themselves.
Result IsSame(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  if (self.kind() != arguments[0].kind()) return JinjaValue::Bool(false);
  ASSIGN_OR_RETURN(const bool equal, Equal(self, arguments[0], context.budget));
  return JinjaValue::Bool(equal);
}

template <const JinjaBuiltin* (*find)(absl::string_view)>
Result IsNameOf(JinjaContext& /*context*/, const JinjaValue& self,
                const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.Is(Kind::kText) && find(self.text().text()) != nullptr);
}

Result IsTrue(JinjaContext& /*context*/, const JinjaValue& self,
              const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.Is(Kind::kBool) && self.boolean());
}

Result IsFalse(JinjaContext& /*context*/, const JinjaValue& self,
               const JinjaArguments& /*arguments*/) {
  return JinjaValue::Bool(self.Is(Kind::kBool) && !self.boolean());
}

template <JinjaOperator op>
Result Holds(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  return ApplyOperator(op, self, arguments[0], context.budget);
}

// The remainder by `divisor` is `wanted`.
Result HasRemainder(const JinjaValue& self, const JinjaValue& divisor, int64_t wanted,
                    JinjaContext& context) {
  ASSIGN_OR_RETURN(const JinjaValue remainder,
                   ApplyOperator(JinjaOperator::kRemainder, self, divisor, context.budget));
  ASSIGN_OR_RETURN(const bool equal, Equal(remainder, JinjaValue::Integer(wanted), context.budget));
  return JinjaValue::Bool(equal);
}

Result IsDivisibleBy(JinjaContext& context, const JinjaValue& self,
                     const JinjaArguments& arguments) {
  return HasRemainder(self, arguments[0], 0, context);
}

Result IsEven(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  return HasRemainder(self, JinjaValue::Integer(2), 0, context);
}

Result IsOdd(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  return HasRemainder(self, JinjaValue::Integer(2), 1, context);
}

// Some letter, and all of them of one case.
template <bool upper>
Result HasCase(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(const OriginText text, ToText(self, context.budget));
  return JinjaValue::Bool(IsOfOneCase(text.text(), upper));
}

const std::vector<JinjaBuiltin>& Tests() {
  static const std::vector<JinjaBuiltin> table = {
      {"!=", {"other"}, 1, Holds<JinjaOperator::kNotEqual>},
      {"<", {"other"}, 1, Holds<JinjaOperator::kLess>},
      {"<=", {"other"}, 1, Holds<JinjaOperator::kLessEqual>},
      {"==", {"other"}, 1, Holds<JinjaOperator::kEqual>},
      {">", {"other"}, 1, Holds<JinjaOperator::kGreater>},
      {">=", {"other"}, 1, Holds<JinjaOperator::kGreaterEqual>},
      {"boolean", {}, 0, IsKind<Kind::kBool>},
      {"callable", {}, 0, IsCallable},
      {"defined", {}, 0, IsDefined},
      {"divisibleby", {"num"}, 1, IsDivisibleBy},
      {"eq", {"other"}, 1, Holds<JinjaOperator::kEqual>},
      {"equalto", {"other"}, 1, Holds<JinjaOperator::kEqual>},
      {"even", {}, 0, IsEven},
      {"false", {}, 0, IsFalse},
      {"filter", {}, 0, IsNameOf<FindJinjaFilter>},
      {"float", {}, 0, IsKind<Kind::kFloat>},
      {"ge", {"other"}, 1, Holds<JinjaOperator::kGreaterEqual>},
      {"greaterthan", {"other"}, 1, Holds<JinjaOperator::kGreater>},
      {"gt", {"other"}, 1, Holds<JinjaOperator::kGreater>},
      {"in", {"seq"}, 1, Holds<JinjaOperator::kIn>},
      {"integer", {}, 0, IsKind<Kind::kInteger>},
      {"iterable", {}, 0, IsIterable},
      {"le", {"other"}, 1, Holds<JinjaOperator::kLessEqual>},
      {"lessthan", {"other"}, 1, Holds<JinjaOperator::kLess>},
      {"lower", {}, 0, HasCase<false>},
      {"lt", {"other"}, 1, Holds<JinjaOperator::kLess>},
      {"mapping", {}, 0, IsKind<Kind::kMapping>},
      {"ne", {"other"}, 1, Holds<JinjaOperator::kNotEqual>},
      {"none", {}, 0, IsKind<Kind::kNone>},
      {"number", {}, 0, IsNumber},
      {"odd", {}, 0, IsOdd},
      {"sameas", {"other"}, 1, IsSame},
      {"sequence", {}, 0, IsSequence},
      {"string", {}, 0, IsKind<Kind::kText>},
      {"test", {}, 0, IsNameOf<FindJinjaTest>},
      {"true", {}, 0, IsTrue},
      {"undefined", {}, 0, IsKind<Kind::kUndefined>},
      {"upper", {}, 0, HasCase<true>},
  };
  return table;
}

}  // namespace

const JinjaBuiltin* FindJinjaTest(absl::string_view name) {
  return FindBuiltin(Tests(), name);
}

}  // namespace nightshift
