// JinjaEvaluator: runs the tree of a chat template once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/origin_text.h"
#include "engine/text/jinja/syntax.h"

namespace nightshift {

// For one thread and one call of Run. Variables are found from the innermost scope outwards: a loop
// pass is a scope, so what it sets is gone after it (as in Jinja), the branches of an if are not.
class JinjaEvaluator {
 public:
  // `source` is what `block` was parsed from, for messages; both outlive the evaluator.
  JinjaEvaluator(const std::string& source, size_t max_output_bytes, JinjaBudget& budget);

  void Define(const std::string& name, JinjaValue value);
  // Errors: INVALID_ARGUMENT with line and expression; RESOURCE_EXHAUSTED naming the limit.
  absl::StatusOr<OriginText> Run(const JinjaBlock& block);

 private:
  using Scope = absl::flat_hash_map<std::string, JinjaValue>;
  using Result = absl::StatusOr<JinjaValue>;
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  absl::StatusOr<Flow> RunBlock(const JinjaBlock& block);
  absl::StatusOr<Flow> RunStatement(const JinjaStatement& statement);
  absl::StatusOr<Flow> RunIf(const JinjaStatement& statement);
  absl::StatusOr<Flow> RunFor(const JinjaStatement& statement);
  absl::StatusOr<JinjaValue> LoopItems(const JinjaStatement& statement);
  absl::Status RunOutput(const JinjaStatement& statement);
  absl::Status RunSetBlock(const JinjaStatement& statement);
  absl::Status Emit(const OriginText& text, const JinjaPlace& place);
  absl::Status Assign(const JinjaStatement& statement, JinjaValue value);

  Result Evaluate(const JinjaExpression& node);
  Result EvaluateName(const JinjaExpression& node);
  Result EvaluateList(const JinjaExpression& node);
  Result EvaluateMapping(const JinjaExpression& node);
  Result EvaluateArithmetic(const JinjaExpression& node);
  Result EvaluateComparison(const JinjaExpression& node);
  Result EvaluateConcatenation(const JinjaExpression& node);
  Result EvaluateLogic(const JinjaExpression& node);
  Result EvaluateConditional(const JinjaExpression& node);
  Result EvaluateItem(const JinjaExpression& node);
  Result EvaluateSlice(const JinjaExpression& node);
  Result EvaluateCall(const JinjaExpression& node);
  Result EvaluateBuiltin(const JinjaExpression& node);
  absl::StatusOr<JinjaCall> EvaluateArguments(const JinjaExpression& node);
  absl::StatusOr<std::optional<int64_t>> EvaluateBound(const JinjaExpressionPtr& node);

  // Adds line and source text to an error that arose at `place` itself.
  absl::Status At(const JinjaPlace& place, const absl::Status& status) const;

  const std::string& source_;
  size_t max_output_bytes_;
  JinjaBudget& budget_;
  std::vector<std::unique_ptr<JinjaNamespace>> namespaces_;
  JinjaContext context_;
  std::vector<Scope> scopes_;
  OriginText output_;
};

}  // namespace nightshift
