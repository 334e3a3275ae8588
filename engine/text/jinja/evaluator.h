// JinjaEvaluator: runs the tree of a chat template once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/origin_text.h"
#include "engine/text/jinja/scope.h"
#include "engine/text/jinja/syntax.h"

namespace nightshift {

// Blocks and expressions running inside each other, over all calls of macros; published templates
// stay below a hundred. The worst template takes less than 1 MiB of stack for this many (measured
// with gcc 12 -O2), of the 8 MiB that a thread has.
inline constexpr int kMaxRunDepth = 700;

// For one thread and one call of Run. Names are found from the innermost scope outwards: a pass of
// a loop, a call of a macro and the body of a set, filter, with or generation block are scopes, so
// what they set is gone after them (as in Jinja); the branches of an if are not.
class JinjaEvaluator {
 public:
  // `source` is what `block` was parsed from, for messages; both outlive the evaluator. `now_us` is
  // what strftime_now tells.
  JinjaEvaluator(const std::string& source, size_t max_output_bytes, int64_t now_us,
                 JinjaBudget& budget);

  void Define(const std::string& name, JinjaValue value);
  // Errors: INVALID_ARGUMENT with line and expression; RESOURCE_EXHAUSTED naming the limit.
  absl::StatusOr<OriginText> Run(const JinjaBlock& block);

 private:
  using Result = absl::StatusOr<JinjaValue>;
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Makes a scope the current one while it lives.
  class ScopeGuard;
  // Counts one level of running while it lives.
  class DepthGuard;

  // evaluator.cc: statements.
  absl::StatusOr<Flow> RunBlock(const JinjaBlock& block);
  absl::StatusOr<Flow> RunStatement(const JinjaStatement& statement);
  absl::StatusOr<Flow> RunIf(const JinjaStatement& statement);
  absl::StatusOr<Flow> RunFor(const JinjaStatement& statement, const JinjaValue& iterable,
                              int depth);
  absl::StatusOr<JinjaValue> LoopItems(const JinjaStatement& statement, const JinjaValue& iterable);
  absl::Status RunOutput(const JinjaStatement& statement);
  absl::StatusOr<Flow> RunCapturing(const JinjaStatement& statement);
  absl::StatusOr<Flow> RunWith(const JinjaStatement& statement);
  absl::Status EmitValue(const JinjaValue& value, const JinjaPlace& place);
  absl::Status Emit(const OriginText& text, const JinjaPlace& place);
  absl::Status Assign(const JinjaTarget& target, JinjaValue value);
  absl::Status AssignAttribute(const JinjaTarget& target, JinjaValue value);

  // evaluator_calls.cc: macros, call blocks, loops that call themselves, arguments.
  JinjaValue MakeMacro(const JinjaStatement& definition);
  absl::Status RunCallBlock(const JinjaStatement& statement);
  Result CallMacro(const JinjaMacro& macro, JinjaCall call);
  absl::Status BindParameters(const JinjaMacro& macro, JinjaCall call);
  Result CallLoop(const JinjaValue& loop, const JinjaCall& call);
  Result CallValue(const JinjaExpression& node, const JinjaValue& function, JinjaCall call);
  Result EvaluateCall(const JinjaExpression& node);
  Result EvaluateBuiltin(const JinjaExpression& node);
  absl::StatusOr<JinjaCall> EvaluateArguments(const JinjaExpression& node);
  absl::Status AddArgument(const JinjaArgumentNode& argument, JinjaCall& call);

  // evaluator_expressions.cc: all other expressions.
  Result Evaluate(const JinjaExpression& node);
  Result EvaluateNode(const JinjaExpression& node);
  Result EvaluateName(const JinjaExpression& node);
  Result EvaluateList(const JinjaExpression& node);
  Result EvaluateMapping(const JinjaExpression& node);
  Result EvaluateUnary(const JinjaExpression& node);
  Result EvaluateArithmetic(const JinjaExpression& node);
  Result EvaluateComparison(const JinjaExpression& node);
  Result EvaluateConcatenation(const JinjaExpression& node);
  Result EvaluateLogic(const JinjaExpression& node);
  Result EvaluateConditional(const JinjaExpression& node);
  Result EvaluateAttribute(const JinjaExpression& node);
  Result EvaluateItem(const JinjaExpression& node);
  Result EvaluateSlice(const JinjaExpression& node);
  absl::StatusOr<std::optional<int64_t>> EvaluateBound(const JinjaExpressionPtr& node);

  // Adds line and source text to an error that arose at `place` itself.
  absl::Status At(const JinjaPlace& place, const absl::Status& status) const;
  absl::Status CheckDepth(const JinjaPlace& place) const;

  const std::string& source_;
  size_t max_output_bytes_;
  JinjaBudget& budget_;
  std::vector<std::unique_ptr<JinjaNamespace>> namespaces_;
  std::vector<JinjaValue> last_seen_;
  JinjaContext context_;
  std::vector<std::unique_ptr<JinjaMacro>> macros_;
  std::vector<std::shared_ptr<JinjaScope>> kept_scopes_;  // of macros
  std::shared_ptr<JinjaScope> scope_;
  JinjaValue captured_;  // what kCaptured means
  int depth_ = 0;
  OriginText output_;
};

class JinjaEvaluator::ScopeGuard {
 public:
  ScopeGuard(JinjaEvaluator& evaluator, std::shared_ptr<JinjaScope> outer)
      : evaluator_(evaluator), previous_(std::move(evaluator.scope_)) {
    evaluator_.scope_ = std::make_shared<JinjaScope>();
    evaluator_.scope_->outer = std::move(outer);
  }
  explicit ScopeGuard(JinjaEvaluator& evaluator) : ScopeGuard(evaluator, evaluator.scope_) {}
  ~ScopeGuard() { evaluator_.scope_ = std::move(previous_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;

 private:
  JinjaEvaluator& evaluator_;
  std::shared_ptr<JinjaScope> previous_;
};

class JinjaEvaluator::DepthGuard {
 public:
  explicit DepthGuard(int& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int& depth_;
};

}  // namespace nightshift
