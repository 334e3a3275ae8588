// Jinja's tests: {{ value is name(argument) }}.
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
  return JinjaValue::Bool(self.Is(Kind::kText) || self.Is(Kind::kList) || self.Is(Kind::kMapping) ||
                          self.Is(Kind::kUndefined));
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
  return JinjaValue::Bool(remainder.number() == static_cast<double>(wanted));
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
template <LetterCase letter_case>
Result HasCase(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  if (!self.Is(Kind::kText)) return JinjaValue::Bool(false);
  RETURN_IF_ERROR(context.budget.SpendBytes(3 * self.text().size()));
  const std::string& text = self.text().text();
  const LetterCase other =
      letter_case == LetterCase::kUpper ? LetterCase::kLower : LetterCase::kUpper;
  return JinjaValue::Bool(ChangeCase(self.text(), letter_case).text() == text &&
                          ChangeCase(self.text(), other).text() != text);
}

const std::vector<JinjaBuiltin>& Tests() {
  static const std::vector<JinjaBuiltin> table = {
      {"boolean", {}, 0, IsKind<Kind::kBool>},
      {"callable", {}, 0, IsKind<Kind::kCallable>},
      {"defined", {}, 0, IsDefined},
      {"divisibleby", {"num"}, 1, IsDivisibleBy},
      {"eq", {"other"}, 1, Holds<JinjaOperator::kEqual>},
      {"equalto", {"other"}, 1, Holds<JinjaOperator::kEqual>},
      {"even", {}, 0, IsEven},
      {"false", {}, 0, IsFalse},
      {"float", {}, 0, IsKind<Kind::kFloat>},
      {"ge", {"other"}, 1, Holds<JinjaOperator::kGreaterEqual>},
      {"gt", {"other"}, 1, Holds<JinjaOperator::kGreater>},
      {"in", {"seq"}, 1, Holds<JinjaOperator::kIn>},
      {"integer", {}, 0, IsKind<Kind::kInteger>},
      {"iterable", {}, 0, IsSequence},
      {"le", {"other"}, 1, Holds<JinjaOperator::kLessEqual>},
      {"lower", {}, 0, HasCase<LetterCase::kLower>},
      {"lt", {"other"}, 1, Holds<JinjaOperator::kLess>},
      {"mapping", {}, 0, IsKind<Kind::kMapping>},
      {"ne", {"other"}, 1, Holds<JinjaOperator::kNotEqual>},
      {"none", {}, 0, IsKind<Kind::kNone>},
      {"number", {}, 0, IsNumber},
      {"odd", {}, 0, IsOdd},
      {"sequence", {}, 0, IsSequence},
      {"string", {}, 0, IsKind<Kind::kText>},
      {"true", {}, 0, IsTrue},
      {"undefined", {}, 0, IsKind<Kind::kUndefined>},
      {"upper", {}, 0, HasCase<LetterCase::kUpper>},
  };
  return table;
}

}  // namespace

const JinjaBuiltin* FindJinjaTest(absl::string_view name) {
  return FindBuiltin(Tests(), name);
}

}  // namespace nightshift
