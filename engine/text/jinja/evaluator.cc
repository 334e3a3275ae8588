#include "engine/text/jinja/evaluator.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/conversions.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/utf8.h"

namespace nightshift {
namespace {

using ValueKind = JinjaValue::Kind;

// Of an expression in a message.
constexpr size_t kMaxQuotedBytes = 120;

}  // namespace

JinjaEvaluator::JinjaEvaluator(const std::string& source, size_t max_output_bytes, int64_t now_us,
                               JinjaBudget& budget)
    : source_(source),
      max_output_bytes_(max_output_bytes),
      budget_(budget),
      context_{
          .budget = budget, .namespaces = namespaces_, .last_seen = last_seen_, .now_us = now_us},
      scope_(std::make_shared<JinjaScope>()) {}

void JinjaEvaluator::Define(const std::string& name, JinjaValue value) {
  scope_->names[name] = std::move(value);
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

absl::Status JinjaEvaluator::CheckDepth(const JinjaPlace& place) const {
  if (depth_ <= kMaxRunDepth) return absl::OkStatus();
  return At(place, absl::ResourceExhaustedError(
                       absl::StrCat("runs nested more than ", kMaxRunDepth, " deep")));
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunBlock(const JinjaBlock& block) {
  const DepthGuard guard(depth_);
  for (const JinjaStatement& statement : block) {
    ASSIGN_OR_RETURN(const Flow flow, RunStatement(statement));
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunStatement(const JinjaStatement& statement) {
  RETURN_IF_ERROR(At(statement.place, budget_.SpendSteps(1)));
  RETURN_IF_ERROR(CheckDepth(statement.place));
  switch (statement.kind) {
    case JinjaStatement::Kind::kText:
      RETURN_IF_ERROR(Emit(statement.text, statement.place));
      return Flow::kNext;
    case JinjaStatement::Kind::kOutput:
      RETURN_IF_ERROR(RunOutput(statement));
      return Flow::kNext;
    case JinjaStatement::Kind::kIf:
      return RunIf(statement);
    case JinjaStatement::Kind::kFor: {
      ASSIGN_OR_RETURN(const JinjaValue iterable, Evaluate(*statement.expression));
      return RunFor(statement, iterable, /*depth=*/0);
    }
    case JinjaStatement::Kind::kSet: {
      ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*statement.expression));
      RETURN_IF_ERROR(At(statement.place, Assign(statement.target, std::move(value))));
      return Flow::kNext;
    }
    case JinjaStatement::Kind::kSetBlock:
    case JinjaStatement::Kind::kFilterBlock:
      return RunCapturing(statement);
    case JinjaStatement::Kind::kScope: {
      const ScopeGuard scope(*this);
      return RunBlock(statement.branches[0].body);
    }
    case JinjaStatement::Kind::kWith:
      return RunWith(statement);
    case JinjaStatement::Kind::kMacro:
      scope_->names[statement.target.name] = MakeMacro(statement);
      return Flow::kNext;
    case JinjaStatement::Kind::kCallBlock:
      RETURN_IF_ERROR(RunCallBlock(statement));
      return Flow::kNext;
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
  RETURN_IF_ERROR(At(place, budget_.SpendBytes(text.size())));
  output_.Append(text);
  return absl::OkStatus();
}

absl::Status JinjaEvaluator::EmitValue(const JinjaValue& value, const JinjaPlace& place) {
  if (value.Is(ValueKind::kText)) return Emit(value.text(), place);
  const absl::StatusOr<OriginText> text = ToText(value, budget_);
  RETURN_IF_ERROR(At(place, text.status()));
  return Emit(*text, place);
}

absl::Status JinjaEvaluator::RunOutput(const JinjaStatement& statement) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*statement.expression));
  return EmitValue(value, statement.place);
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
absl::StatusOr<JinjaValue> JinjaEvaluator::LoopItems(const JinjaStatement& statement,
                                                     const JinjaValue& iterable) {
  absl::StatusOr<std::vector<JinjaValue>> elements = Elements(iterable, budget_);
  RETURN_IF_ERROR(At(statement.expression->place, elements.status()));
  if (statement.filter == nullptr) return JinjaValue::List(*std::move(elements));
  std::vector<JinjaValue> kept;
  for (JinjaValue& element : *elements) {
    const ScopeGuard scope(*this);
    RETURN_IF_ERROR(At(statement.place, Assign(statement.target, element)));
    ASSIGN_OR_RETURN(const JinjaValue keep, Evaluate(*statement.filter));
    if (keep.IsTrue()) kept.push_back(std::move(element));
  }
  return JinjaValue::List(std::move(kept));
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunFor(const JinjaStatement& statement,
                                                            const JinjaValue& iterable, int depth) {
  ASSIGN_OR_RETURN(JinjaValue items, LoopItems(statement, iterable));
  auto loop = std::make_shared<JinjaLoop>();
  loop->items = std::make_shared<const JinjaValue>(std::move(items));
  loop->depth = depth;
  if (statement.recursive) {
    loop->recursive = &statement;
    loop->outer = scope_;
  }
  bool completed = false;
  for (const JinjaValue& item : loop->items->items()) {
    RETURN_IF_ERROR(At(statement.place, budget_.SpendSteps(1)));
    const ScopeGuard scope(*this);
    scope_->names["loop"] = JinjaValue::Loop(loop);
    RETURN_IF_ERROR(At(statement.place, Assign(statement.target, item)));
    ASSIGN_OR_RETURN(const Flow flow, RunBlock(statement.branches[0].body));
    ++loop->index;
    completed = completed || flow == Flow::kNext;
    if (flow == Flow::kBreak) break;
  }
  // Jinja notes at the end of a pass that there was one, which break and continue jump over.
  if (completed || statement.branches.size() == 1) return Flow::kNext;
  const ScopeGuard scope(*this);
  return RunBlock(statement.branches[1].body);
}

// {% set %} and {% filter %}: the body's output becomes a value. A jump out of the body leaves both
// undone.
absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunCapturing(const JinjaStatement& statement) {
  OriginText outer = std::exchange(output_, OriginText());
  absl::StatusOr<Flow> flow = Flow::kNext;
  {
    const ScopeGuard scope(*this);
    flow = RunBlock(statement.branches[0].body);
  }
  JinjaValue captured = JinjaValue::Text(std::exchange(output_, std::move(outer)));
  if (!flow.ok() || *flow != Flow::kNext) return flow;
  if (statement.expression != nullptr) {
    captured_ = std::move(captured);
    ASSIGN_OR_RETURN(captured, Evaluate(*statement.expression));
  }
  if (statement.kind == JinjaStatement::Kind::kFilterBlock) {
    if (!captured.Is(ValueKind::kText)) {
      return At(statement.place,
                absl::InvalidArgumentError(absl::StrCat("a filter of a block must give text, gave ",
                                                        captured.TypeName())));
    }
    RETURN_IF_ERROR(Emit(captured.text(), statement.place));
  } else {
    RETURN_IF_ERROR(At(statement.place, Assign(statement.target, std::move(captured))));
  }
  return Flow::kNext;
}

absl::StatusOr<JinjaEvaluator::Flow> JinjaEvaluator::RunWith(const JinjaStatement& statement) {
  std::vector<JinjaValue> values;
  for (const auto& [name, expression] : statement.assignments) {
    ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  const ScopeGuard scope(*this);
  for (size_t i = 0; i < values.size(); ++i)
    scope_->names[statement.assignments[i].first] = std::move(values[i]);
  return RunBlock(statement.branches[0].body);
}

absl::Status JinjaEvaluator::AssignAttribute(const JinjaTarget& target, JinjaValue value) {
  for (const JinjaScope* scope = scope_.get(); scope != nullptr; scope = scope->outer.get()) {
    const auto found = scope->names.find(target.name);
    if (found == scope->names.end()) continue;
    if (!found->second.Is(ValueKind::kNamespace)) break;
    found->second.name_space().values[target.attribute] = std::move(value);
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(target.name, " is not a namespace"));
}

absl::Status JinjaEvaluator::Assign(const JinjaTarget& target, JinjaValue value) {
  if (!target.attribute.empty()) return AssignAttribute(target, std::move(value));
  if (target.parts.empty()) {
    scope_->names[target.name] = std::move(value);
    return absl::OkStatus();
  }
  if (value.Is(ValueKind::kUndefined)) return absl::InvalidArgumentError(value.undefined_what());
  ASSIGN_OR_RETURN(std::vector<JinjaValue> parts, Elements(value, budget_));
  if (parts.size() != target.parts.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size(), " values for ", target.parts.size(), " names"));
  }
  for (size_t i = 0; i < parts.size(); ++i)
    RETURN_IF_ERROR(Assign(target.parts[i], std::move(parts[i])));
  return absl::OkStatus();
}

}  // namespace nightshift
