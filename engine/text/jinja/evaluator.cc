#include "engine/text/jinja/evaluator.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/conversions.h"
#include "engine/text/jinja/operations.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaExpression::Kind;
using ValueKind = JinjaValue::Kind;

// Of an expression in a message.
constexpr size_t kMaxQuotedBytes = 120;

}  // namespace

JinjaEvaluator::JinjaEvaluator(const std::string& source, size_t max_output_bytes,
                               JinjaBudget& budget)
    : source_(source),
      max_output_bytes_(max_output_bytes),
      budget_(budget),
      context_{.budget = budget, .namespaces = namespaces_},
      scopes_(1) {}

void JinjaEvaluator::Define(const std::string& name, JinjaValue value) {
  scopes_.front()[name] = std::move(value);
}

absl::StatusOr<OriginText> JinjaEvaluator::Run(const JinjaBlock& block) {
  RETURN_IF_ERROR(RunBlock(block).status());
  return std::move(output_);
}

absl::Status JinjaEvaluator::At(const JinjaPlace& place, const absl::Status& status) const {
  if (status.ok()) return status;
  size_t last = place.last;
  if (last - place.first > kMaxQuotedBytes) {
    last = PreviousCharacter(source_, place.first + kMaxQuotedBytes);
  }
  return absl::Status(status.code(),
                      absl::StrCat("chat template line ", place.line, ": `",
                                   source_.substr(place.first, last - place.first),
                                   last < place.last ? "..." : "", "`: ", status.message()));
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunBlock(const JinjaBlock& block) {
  for (const JinjaStatement& statement : block) {
    ASSIGN_OR_RETURN(const Flow flow, RunStatement(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunStatement(const JinjaStatement& statement) {
  RETURN_IF_ERROR(At(statement.place, budget_.SpendSteps(1)));
  switch (statement.kind) {
    case JinjaStatement::Kind::kText:
      RETURN_IF_ERROR(Emit(statement.text, statement.place));
      return Flow::kNext;
    case JinjaStatement::Kind::kOutput:
      RETURN_IF_ERROR(RunOutput(statement));
      return Flow::kNext;
    case JinjaStatement::Kind::kIf:
      return RunIf(statement);
    case JinjaStatement::Kind::kFor:
      return RunFor(statement);
    case JinjaStatement::Kind::kSet: {
      ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(At(statement.place, Assign(statement, std::move(value))));
      return Flow::kNext;
    }
    case JinjaStatement::Kind::kSetBlock:
      RETURN_IF_ERROR(RunSetBlock(statement));
      return Flow::kNext;
    case JinjaStatement::Kind::kBlock:
      return RunBlock(statement.branches[0].body);
    case JinjaStatement::Kind::kBreak:
      return Flow::kBreak;
    case JinjaStatement::Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status JinjaEvaluator::Emit(const OriginText& text, const JinjaPlace& place) {
  if (text.size() > max_output_bytes_ - output_.size()) {
    return At(place, absl::ResourceExhaustedError(
                         absl::StrCat("more than ", max_output_bytes_, " bytes of output")));
  }
  output_.Append(text);
  return absl::OkStatus();
}

absl::Status JinjaEvaluator::RunOutput(const JinjaStatement& statement) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.expression));
  if (value.Is(ValueKind::kText)) return Emit(value.text(), statement.place);
  const absl::StatusOr<OriginText> text = ToText(value, budget_);
  RETURN_IF_ERROR(At(statement.place, text.status()));
  return Emit(*text, statement.place);
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunIf(const JinjaStatement& statement) {
  for (const JinjaBranch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      ASSIGN_OR_RETURN(const JinjaValue condition, Evaluate(*branch.condition));
      if (!condition.IsTrue()) continue;
    }
    return RunBlock(branch.body);
  }
  return Flow::kNext;
}

// What the loop runs over: all elements, or those that its `if` keeps.
absl::StatusOr<JinjaValue> JinjaEvaluator::LoopItems(const JinjaStatement& statement) {
  ASSIGN_OR_RETURN(const JinjaValue iterable, Evaluate(*statement.expression));
  absl::StatusOr<std::vector<JinjaValue>> elements = Elements(iterable, budget_);
  RETURN_IF_ERROR(At(statement.expression->place, elements.status()));
  if (statement.filter == nullptr) return JinjaValue::List(*std::move(elements));
  std::vector<JinjaValue> kept;
  scopes_.emplace_back();
  for (JinjaValue& element : *elements) {
    RETURN_IF_ERROR(At(statement.place, Assign(statement, element)));
    ASSIGN_OR_RETURN(const JinjaValue keep, Evaluate(*statement.filter));
    if (keep.IsTrue()) kept.push_back(std::move(element));
  }
  scopes_.pop_back();
  return JinjaValue::List(std::move(kept));
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunFor(const JinjaStatement& statement) {
  ASSIGN_OR_RETURN(JinjaValue items, LoopItems(statement));
  if (items.items().empty() && statement.branches.size() > 1) {
    return RunBlock(statement.branches[1].body);
  }
  auto loop = std::make_shared<JinjaLoop>();
  loop->items = std::make_shared<const JinjaValue>(std::move(items));
  for (const JinjaValue& item : loop->items->items()) {
    RETURN_IF_ERROR(At(statement.place, budget_.SpendSteps(1)));
    scopes_.emplace_back();
    scopes_.back()["loop"] = JinjaValue::Loop(loop);
    RETURN_IF_ERROR(At(statement.place, Assign(statement, item)));
    ASSIGN_OR_RETURN(const Flow flow, RunBlock(statement.branches[0].body));
    scopes_.pop_back();
    ++loop->index;
    if (flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

absl::Status JinjaEvaluator::RunSetBlock(const JinjaStatement& statement) {
  OriginText outer = std::exchange(output_, OriginText());
  RETURN_IF_ERROR(RunBlock(statement.branches[0].body).status());
  JinjaValue captured = JinjaValue::Text(std::exchange(output_, std::move(outer)));
  return At(statement.place, Assign(statement, std::move(captured)));
}

absl::Status JinjaEvaluator::Assign(const JinjaStatement& statement, JinjaValue value) {
  const JinjaTarget& target = statement.target;
  if (!target.attribute.empty()) {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(target.names[0]);
      if (found == scope->end()) continue;
      if (!found->second.Is(ValueKind::kNamespace)) break;
      found->second.name_space().values[target.attribute] = std::move(value);
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat(target.names[0], " is not a namespace"));
  }
  if (target.names.size() == 1) {
    scopes_.back()[target.names[0]] = std::move(value);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(std::vector<JinjaValue> parts, Elements(value, budget_));
  if (parts.size() != target.names.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size(), " values for ", target.names.size(), " names"));
  }
  for (size_t i = 0; i < parts.size(); ++i)
    scopes_.back()[target.names[i]] = std::move(parts[i]);
  return absl::OkStatus();
}

JinjaEvaluator::Result JinjaEvaluator::Evaluate(const JinjaExpression& node) {
  RETURN_IF_ERROR(At(node.place, budget_.SpendSteps(1)));
  switch (node.kind) {
    case Kind::kLiteral:
      return node.value;
    case Kind::kName:
      return EvaluateName(node);
    case Kind::kList:
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
    case Kind::kNot: {
      ASSIGN_OR_RETURN(const JinjaValue operand, Evaluate(*node.operands[0]));
      return JinjaValue::Bool(!operand.IsTrue());
    }
    case Kind::kNegate: {
      ASSIGN_OR_RETURN(const JinjaValue operand, Evaluate(*node.operands[0]));
      Result negated = Negate(operand);
      RETURN_IF_ERROR(At(node.place, negated.status()));
      return negated;
    }
    case Kind::kConditional:
      return EvaluateConditional(node);
    case Kind::kAttribute: {
      ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.operands[0]));
      Result found = GetAttribute(value, node.name);
      RETURN_IF_ERROR(At(node.place, found.status()));
      return found;
    }
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
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(node.name);
    if (found != scope->end()) return found->second;
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
  Result list = JinjaValue::List(std::move(items));
  RETURN_IF_ERROR(At(node.place, list.status()));
  return list;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateMapping(const JinjaExpression& node) {
  std::vector<std::pair<OriginText, JinjaValue>> entries;
  for (size_t i = 0; i < node.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(const JinjaValue key, Evaluate(*node.operands[i]));
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*node.operands[i + 1]));
    if (!key.Is(ValueKind::kText)) {
      return At(node.place, absl::InvalidArgumentError(absl::StrCat(
                                "keys of mappings must be text, found ", key.TypeName())));
    }
    entries.emplace_back(key.text(), std::move(value));
  }
  Result mapping = JinjaValue::Mapping(std::move(entries));
  RETURN_IF_ERROR(At(node.place, mapping.status()));
  return mapping;
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
  if (!value.IsNumber() || value.Is(ValueKind::kFloat)) {
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

absl::StatusOr<JinjaCall> JinjaEvaluator::EvaluateArguments(const JinjaExpression& node) {
  JinjaCall call;
  for (const JinjaArgumentNode& argument : node.arguments) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*argument.value));
    if (argument.name.empty()) {
      call.positional.push_back(std::move(value));
    } else {
      call.keywords.emplace_back(argument.name, std::move(value));
    }
  }
  return call;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateCall(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue function, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(JinjaCall call, EvaluateArguments(node));
  if (function.Is(ValueKind::kUndefined)) {
    return At(node.place, absl::InvalidArgumentError(function.undefined_what()));
  }
  if (!function.Is(ValueKind::kCallable)) {
    return At(node.place,
              absl::InvalidArgumentError(absl::StrCat(function.TypeName(), " cannot be called")));
  }
  const JinjaCallable& callable = function.callable();
  const JinjaValue none;
  Result result =
      RunJinjaBuiltin(*callable.builtin, context_, callable.self == nullptr ? none : *callable.self,
                      std::move(call));
  RETURN_IF_ERROR(At(node.place, result.status()));
  return result;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateBuiltin(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(JinjaCall call, EvaluateArguments(node));
  Result result = RunJinjaBuiltin(*node.builtin, context_, value, std::move(call));
  RETURN_IF_ERROR(At(node.place, result.status()));
  return result;
}

}  // namespace nightshift
