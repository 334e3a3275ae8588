#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/evaluator.h"
#include "engine/text/jinja/operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaExpression::Kind;
using ValueKind = JinjaValue::Kind;

}  // namespace

JinjaEvaluator::Result JinjaEvaluator::Evaluate(const JinjaExpression& node) {
  RETURN_IF_ERROR(At(node.place, budget_.SpendSteps(1)));
  const DepthGuard guard(depth_);
  RETURN_IF_ERROR(CheckDepth(node.place));
  return EvaluateNode(node);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateNode(const JinjaExpression& node) {
  switch (node.kind) {
    case Kind::kLiteral:
      return node.value;
    case Kind::kName:
      return EvaluateName(node);
    case Kind::kCaptured:
      return captured_;
    case Kind::kList:
    case Kind::kTuple:
      return EvaluateList(node);
    case Kind::kMapping:
      return EvaluateMapping(node);
    case Kind::kArithmetic:
      return EvaluateArithmetic(node);
    case Kind::kComparison:
      return EvaluateComparison(node);
    case Kind::kConcatenate:
      return EvaluateConcatenation(node);
    case Kind::kAnd:
    case Kind::kOr:
      return EvaluateLogic(node);
    case Kind::kNot:
    case Kind::kNegate:
    case Kind::kPlus:
      return EvaluateUnary(node);
    case Kind::kConditional:
      return EvaluateConditional(node);
    case Kind::kAttribute:
      return EvaluateAttribute(node);
    case Kind::kItem:
      return EvaluateItem(node);
    case Kind::kSlice:
      return EvaluateSlice(node);
    case Kind::kCall:
      return EvaluateCall(node);
    case Kind::kFilter:
    case Kind::kTest:
      return EvaluateBuiltin(node);
  }
  return JinjaValue();
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateName(const JinjaExpression& node) {
  for (const JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    const auto found = scope->names.find(node.name);
    if (found != scope->names.end()) return found->second;
  }
  const JinjaBuiltin* function = FindJinjaFunction(node.name);
  if (function != nullptr) return JinjaValue::Callable(function);
  return JinjaValue::Undefined(absl::StrCat("'", node.name, "' is undefined"));
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateList(const JinjaExpression& node) {
  std::vector<JinjaValue> items;
  items.reserve(node.operands.size());
  for (const JinjaExpressionPtr& operand : node.operands) {
    ASSIGN_OR_RETURN(JinjaValue item, Evaluate(*operand));
    items.push_back(std::move(item));
  }
  Result list = JinjaValue::List(
      std::move(items), node.kind == Kind::kTuple ? SequenceKind::kTuple : SequenceKind::kList);
  RETURN_IF_ERROR(At(node.place, list.status()));
  return list;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateMapping(const JinjaExpression& node) {
  std::vector<std::pair<JinjaValue, JinjaValue>> entries;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(JinjaValue key, Evaluate(*node.operands[i]));
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*node.operands[i + 1]));
    if (key.Is(ValueKind::kText)) {
      RETURN_IF_ERROR(At(node.place, budget_.SpendBytes(key.text().size())));
    }
    entries.emplace_back(std::move(key), std::move(value));
  }
  Result mapping = JinjaValue::Mapping(std::move(entries));
  RETURN_IF_ERROR(At(node.place, mapping.status()));
  return mapping;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateUnary(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue operand, Evaluate(*node.operands[0]));
  if (node.kind == Kind::kNot) return JinjaValue::Bool(!operand.IsTrue());
  Result result = node.kind == Kind::kNegate ? Negate(operand) : Plus(operand);
  RETURN_IF_ERROR(At(node.place, result.status()));
  return result;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateAttribute(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.operands[0]));
  Result found = GetAttribute(value, node.name);
  RETURN_IF_ERROR(At(node.place, found.status()));
  return found;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateArithmetic(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(JinjaValue result, Evaluate(*node.operands[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    ASSIGN_OR_RETURN(const JinjaValue right, Evaluate(*node.operands[i + 1]));
    Result next = ApplyOperator(node.operators[i], result, right, budget_);
    RETURN_IF_ERROR(At(node.place, next.status()));
    result = *std::move(next);
  }
  return result;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateComparison(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(JinjaValue left, Evaluate(*node.operands[0]));
  for (size_t i = 0; i < node.operators.size(); ++i) {
    ASSIGN_OR_RETURN(JinjaValue right, Evaluate(*node.operands[i + 1]));
    const Result holds = ApplyOperator(node.operators[i], left, right, budget_);
    RETURN_IF_ERROR(At(node.place, holds.status()));
    if (!holds->IsTrue()) return JinjaValue::Bool(false);
    left = std::move(right);
  }
  return JinjaValue::Bool(true);
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateConcatenation(const JinjaExpression& node) {
  OriginText joined;
  for (const JinjaExpressionPtr& operand : node.operands) {
    ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*operand));
    const absl::StatusOr<OriginText> text = ToText(value, budget_);
    RETURN_IF_ERROR(At(node.place, text.status()));
    joined.Append(*text);
  }
  return JinjaValue::Text(std::move(joined));
}

// `and` and `or` give the operand that decides, as in Python.
JinjaEvaluator::Result JinjaEvaluator::EvaluateLogic(const JinjaExpression& node) {
  const bool decides = node.kind == Kind::kOr;
  JinjaValue value;
  for (const JinjaExpressionPtr& operand : node.operands) {
    ASSIGN_OR_RETURN(value, Evaluate(*operand));
    if (value.IsTrue() == decides) break;
  }
  return value;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateConditional(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*node.operands[1]));
  if (condition.IsTrue()) return Evaluate(*node.operands[0]);
  if (node.operands[2] != nullptr) return Evaluate(*node.operands[2]);
  return JinjaValue::Undefined("an inline if without else whose condition is false");
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateItem(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(const JinjaValue key, Evaluate(*node.operands[1]));
  Result found = GetItem(value, key, budget_);
  RETURN_IF_ERROR(At(node.place, found.status()));
  return found;
}

absl::StatusOr<std::optional<int64_t>> JinjaEvaluator::EvaluateBound(
    const JinjaExpressionPtr& node) {
  std::optional<int64_t> bound;
  if (node == nullptr) return bound;
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node));
  if (value.Is(ValueKind::kNone)) return bound;
  if (!value.IsWhole()) {
    return At(node->place, absl::InvalidArgumentError(absl::StrCat(
                               "a slice bound must be a whole number, is ", value.TypeName())));
  }
  bound = value.integer();
  return bound;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateSlice(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.operands[0]));
  JinjaSlice slice;
  ASSIGN_OR_RETURN(slice.start, EvaluateBound(node.operands[1]));
  ASSIGN_OR_RETURN(slice.stop, EvaluateBound(node.operands[2]));
  ASSIGN_OR_RETURN(const std::optional<int64_t> step, EvaluateBound(node.operands[3]));
  slice.step = step.value_or(1);
  Result part = Slice(value, slice, budget_);
  RETURN_IF_ERROR(At(node.place, part.status()));
  return part;
}

}  // namespace nightshift
