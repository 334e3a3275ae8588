// Parses expressions by Jinja's precedence, from `a if b else c` down to literals.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/text/jinja/syntax.h"
#include "engine/text/jinja/token_stream.h"

namespace nightshift {

class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, int64_t max_depth)
      : tokens_(tokens), max_depth_(max_depth) {}

  // One expression; `with_condition` allows `a if b else c`.
  // Errors: INVALID_ARGUMENT with the line; also for unknown filters and tests.
  absl::StatusOr<JinjaExpressionPtr> Parse(bool with_condition = true);
  // The same, where commas without brackets make a list.
  absl::StatusOr<JinjaExpressionPtr> ParseTuple(bool with_condition = true);
  // The filters of {% filter %} and {% set name | filter %}, over kCaptured; the current token is
  // the first filter's name, or the | before it.
  absl::StatusOr<JinjaExpressionPtr> ParseBlockFilters();
  // The parameters of a macro, in brackets.
  absl::StatusOr<std::vector<JinjaSignature::Parameter>> ParseParameters();

 private:
  using Result = absl::StatusOr<JinjaExpressionPtr>;
  using Level = Result (ExpressionParser::*)();

  Result ParseConditional();
  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseComparison();
  Result ParseSum();
  Result ParseConcatenation();
  Result ParseProduct();
  Result ParsePower();
  Result ParseUnary() { return ParseSigned(/*with_filter=*/true); }
  Result ParseSigned(bool with_filter);
  Result ParsePrimary();
  Result ParseNumber();
  Result ParseStrings();
  Result ParseParenthesised();
  Result ParseListLiteral();
  Result ParseMappingLiteral();
  Result ParsePostfix(JinjaExpressionPtr expression);
  Result ParseFiltersAndTests(JinjaExpressionPtr expression);
  Result ParseSubscript(JinjaExpressionPtr base);
  Result ParseFilter(JinjaExpressionPtr base);
  Result ParseTest(JinjaExpressionPtr base);
  absl::Status ParseArguments(JinjaExpression& call);
  absl::StatusOr<JinjaArgumentNode> ParseArgument(const JinjaExpression& call);

  // Operands of one level between words such as `and`.
  Result ParseWordChain(JinjaExpression::Kind kind, absl::string_view word, Level next);
  // Operands of one level between operators that `take` recognises and consumes.
  Result ParseOperatorChain(JinjaExpression::Kind kind,
                            bool (ExpressionParser::*take)(JinjaOperator&), Level next);
  bool TakeComparison(JinjaOperator& op);
  bool TakeSum(JinjaOperator& op);
  bool TakeProduct(JinjaOperator& op);
  bool TakePower(JinjaOperator& op);

  // A node from `start` to the last taken token. Errors if it is nested too deep.
  Result Make(JinjaExpression::Kind kind, const JinjaToken& start,
              std::vector<JinjaExpressionPtr> operands);
  Result Finish(JinjaExpressionPtr node, const JinjaToken& start);

  TokenStream& tokens_;
  int64_t max_depth_;
  int64_t depth_ = 0;  // calls of Parse and ParseSigned around each other
};

}  // namespace nightshift
