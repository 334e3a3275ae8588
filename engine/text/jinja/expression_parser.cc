#include "engine/text/jinja/expression_parser.h"

#include <algorithm>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

#include "engine/text/jinja/builtins.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaExpression::Kind;
using TokenKind = JinjaToken::Kind;

// Counts one level of nesting while it lives.
class DepthGuard {
 public:
  explicit DepthGuard(int64_t& depth) : depth_(depth) { ++depth_; }
  ~DepthGuard() { --depth_; }
  DepthGuard(const DepthGuard&) = delete;
  DepthGuard& operator=(const DepthGuard&) = delete;

 private:
  int64_t& depth_;
};

JinjaExpressionPtr Literal(JinjaValue value) {
  auto node = std::make_unique<JinjaExpression>();
  node->value = std::move(value);
  return node;
}

template <typename... Operands>
std::vector<JinjaExpressionPtr> ListOf(Operands... operands) {
  std::vector<JinjaExpressionPtr> list;
  (list.push_back(std::move(operands)), ...);
  return list;
}

}  // namespace

ExpressionParser::Result ExpressionParser::Make(Kind kind, const JinjaToken& start,
                                                std::vector<JinjaExpressionPtr> operands) {
  auto node = std::make_unique<JinjaExpression>();
  node->kind = kind;
  node->operands = std::move(operands);
  return Finish(std::move(node), start);
}

ExpressionParser::Result ExpressionParser::Finish(JinjaExpressionPtr node,
                                                  const JinjaToken& start) {
  node->place = tokens_.PlaceFrom(start);
  int depth = 0;
  for (const JinjaExpressionPtr& operand : node->operands) {
    if (operand != nullptr) depth = std::max(depth, operand->depth);
  }
  for (const JinjaArgumentNode& argument : node->arguments) {
    depth = std::max(depth, argument.value->depth);
  }
  node->depth = depth + 1;
  if (node->depth > max_depth_) {
    return tokens_.Refused(absl::StrCat("expressions nested more than ", max_depth_, " deep"));
  }
  return node;
}

ExpressionParser::Result ExpressionParser::Parse(bool with_condition) {
  const DepthGuard guard(depth_);
  if (depth_ > max_depth_) {
    return tokens_.Refused(absl::StrCat("expressions nested more than ", max_depth_, " deep"));
  }
  return with_condition ? ParseConditional() : ParseOr();
}

ExpressionParser::Result ExpressionParser::ParseTuple(bool with_condition) {
  const JinjaToken start = tokens_.Peek();
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, Parse(with_condition));
  if (!tokens_.IsOperator(",")) return first;
  std::vector<JinjaExpressionPtr> elements = ListOf(std::move(first));
  while (tokens_.TakeOperator(",")) {
    const bool ends = tokens_.Is(TokenKind::kBlockEnd) || tokens_.Is(TokenKind::kVariableEnd) ||
                      tokens_.IsOperator(")");
    if (ends) break;
    ASSIGN_OR_RETURN(JinjaExpressionPtr element, Parse(with_condition));
    elements.push_back(std::move(element));
  }
  return Make(Kind::kTuple, start, std::move(elements));
}

ExpressionParser::Result ExpressionParser::ParseConditional() {
  const JinjaToken start = tokens_.Peek();
  ASSIGN_OR_RETURN(JinjaExpressionPtr expression, ParseOr());
  while (tokens_.TakeName("if")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr condition, ParseOr());
    JinjaExpressionPtr otherwise;
    if (tokens_.TakeName("else")) {
      ASSIGN_OR_RETURN(otherwise, Parse());
    }
    ASSIGN_OR_RETURN(expression, Make(Kind::kConditional, start,
                                      ListOf(std::move(expression), std::move(condition),
                                             std::move(otherwise))));
  }
  return expression;
}

ExpressionParser::Result ExpressionParser::ParseWordChain(Kind kind, absl::string_view word,
                                                          Level next) {
  const JinjaToken start = tokens_.Peek();
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, (this->*next)());
  if (!tokens_.IsName(word)) return first;
  std::vector<JinjaExpressionPtr> operands = ListOf(std::move(first));
  while (tokens_.TakeName(word)) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, (this->*next)());
    operands.push_back(std::move(operand));
  }
  return Make(kind, start, std::move(operands));
}

ExpressionParser::Result ExpressionParser::ParseOr() {
  return ParseWordChain(Kind::kOr, "or", &ExpressionParser::ParseAnd);
}

ExpressionParser::Result ExpressionParser::ParseAnd() {
  return ParseWordChain(Kind::kAnd, "and", &ExpressionParser::ParseNot);
}

ExpressionParser::Result ExpressionParser::ParseNot() {
  const JinjaToken start = tokens_.Peek();
  if (!tokens_.TakeName("not")) return ParseComparison();
  const DepthGuard guard(depth_);
  if (depth_ > max_depth_) {
    return tokens_.Refused(absl::StrCat("expressions nested more than ", max_depth_, " deep"));
  }
  ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseNot());
  return Make(Kind::kNot, start, ListOf(std::move(operand)));
}

ExpressionParser::Result ExpressionParser::ParseOperatorChain(
    Kind kind, bool (ExpressionParser::*take)(JinjaOperator&), Level next) {
  const JinjaToken start = tokens_.Peek();
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, (this->*next)());
  JinjaOperator op = JinjaOperator::kAdd;
  if (!(this->*take)(op)) return first;
  auto node = std::make_unique<JinjaExpression>();
  node->kind = kind;
  node->operands = ListOf(std::move(first));
  do {
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, (this->*next)());
    node->operands.push_back(std::move(operand));
    node->operators.push_back(op);
  } while ((this->*take)(op));
  return Finish(std::move(node), start);
}

ExpressionParser::Result ExpressionParser::ParseComparison() {
  return ParseOperatorChain(Kind::kComparison, &ExpressionParser::TakeComparison,
                            &ExpressionParser::ParseSum);
}

bool ExpressionParser::TakeComparison(JinjaOperator& op) {
  static constexpr std::pair<const char*, JinjaOperator> kOperators[] = {
      {"==", JinjaOperator::kEqual},        {"!=", JinjaOperator::kNotEqual},
      {"<=", JinjaOperator::kLessEqual},    {"<", JinjaOperator::kLess},
      {">=", JinjaOperator::kGreaterEqual}, {">", JinjaOperator::kGreater}};
  for (const auto& [text, meaning] : kOperators) {
    if (tokens_.TakeOperator(text)) {
      op = meaning;
      return true;
    }
  }
  if (tokens_.TakeName("in")) {
    op = JinjaOperator::kIn;
    return true;
  }
  if (tokens_.IsName("not") && tokens_.IsName("in", 1)) {
    tokens_.Take();
    tokens_.Take();
    op = JinjaOperator::kNotIn;
    return true;
  }
  return false;
}

ExpressionParser::Result ExpressionParser::ParseSum() {
  return ParseOperatorChain(Kind::kArithmetic, &ExpressionParser::TakeSum,
                            &ExpressionParser::ParseConcatenation);
}

bool ExpressionParser::TakeSum(JinjaOperator& op) {
  op = tokens_.IsOperator("+") ? JinjaOperator::kAdd : JinjaOperator::kSubtract;
  return tokens_.TakeOperator("+") || tokens_.TakeOperator("-");
}

ExpressionParser::Result ExpressionParser::ParseConcatenation() {
  const JinjaToken start = tokens_.Peek();
  ASSIGN_OR_RETURN(JinjaExpressionPtr first, ParseProduct());
  if (!tokens_.IsOperator("~")) return first;
  std::vector<JinjaExpressionPtr> operands = ListOf(std::move(first));
  while (tokens_.TakeOperator("~")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseProduct());
    operands.push_back(std::move(operand));
  }
  return Make(Kind::kConcatenate, start, std::move(operands));
}

ExpressionParser::Result ExpressionParser::ParseProduct() {
  return ParseOperatorChain(Kind::kArithmetic, &ExpressionParser::TakeProduct,
                            &ExpressionParser::ParsePower);
}

bool ExpressionParser::TakeProduct(JinjaOperator& op) {
  static constexpr std::pair<const char*, JinjaOperator> kOperators[] = {
      {"*", JinjaOperator::kMultiply},
      {"/", JinjaOperator::kDivide},
      {"//", JinjaOperator::kFloorDivide},
      {"%", JinjaOperator::kRemainder}};
  for (const auto& [text, meaning] : kOperators) {
    if (tokens_.TakeOperator(text)) {
      op = meaning;
      return true;
    }
  }
  return false;
}

ExpressionParser::Result ExpressionParser::ParsePower() {
  return ParseOperatorChain(Kind::kArithmetic, &ExpressionParser::TakePower,
                            &ExpressionParser::ParseUnary);
}

bool ExpressionParser::TakePower(JinjaOperator& op) {
  op = JinjaOperator::kPower;
  return tokens_.TakeOperator("**");
}

ExpressionParser::Result ExpressionParser::ParseSigned(bool with_filter) {
  const JinjaToken start = tokens_.Peek();
  const DepthGuard guard(depth_);
  // Twice the bound: a pair of brackets passes here and in Parse.
  if (depth_ > 2 * max_depth_) {
    return tokens_.Refused(absl::StrCat("expressions nested more than ", max_depth_, " deep"));
  }
  JinjaExpressionPtr expression;
  if (tokens_.TakeOperator("-")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseSigned(/*with_filter=*/false));
    ASSIGN_OR_RETURN(expression, Make(Kind::kNegate, start, ListOf(std::move(operand))));
  } else if (tokens_.TakeOperator("+")) {
    ASSIGN_OR_RETURN(JinjaExpressionPtr operand, ParseSigned(/*with_filter=*/false));
    ASSIGN_OR_RETURN(expression, Make(Kind::kPlus, start, ListOf(std::move(operand))));
  } else {
    ASSIGN_OR_RETURN(expression, ParsePrimary());
  }
  ASSIGN_OR_RETURN(expression, ParsePostfix(std::move(expression)));
  if (with_filter) return ParseFiltersAndTests(std::move(expression));
  return expression;
}

ExpressionParser::Result ExpressionParser::ParsePrimary() {
  const JinjaToken start = tokens_.Peek();
  switch (start.kind) {
    case TokenKind::kString:
      return ParseStrings();
    case TokenKind::kInteger:
    case TokenKind::kFloat:
      return ParseNumber();
    case TokenKind::kName: {
      tokens_.Take();
      JinjaExpressionPtr node;
      if (start.text == "true" || start.text == "True") {
        node = Literal(JinjaValue::Bool(true));
      } else if (start.text == "false" || start.text == "False") {
        node = Literal(JinjaValue::Bool(false));
      } else if (start.text == "none" || start.text == "None") {
        node = Literal(JinjaValue::None());
      } else {
        node = std::make_unique<JinjaExpression>();
        node->kind = Kind::kName;
        node->name = start.text;
      }
      return Finish(std::move(node), start);
    }
    default:
      break;
  }
  if (tokens_.IsOperator("(")) return ParseParenthesised();
  if (tokens_.IsOperator("[")) return ParseListLiteral();
  if (tokens_.IsOperator("{")) return ParseMappingLiteral();
  return tokens_.Unexpected("an expression");
}

// Neighbouring literals are one string, as in Python.
ExpressionParser::Result ExpressionParser::ParseStrings() {
  const JinjaToken start = tokens_.Peek();
  std::string text;
  while (tokens_.Is(TokenKind::kString))
    text += tokens_.Take().text;
  return Finish(Literal(JinjaValue::Text(text, /*trusted=*/true)), start);
}

ExpressionParser::Result ExpressionParser::ParseNumber() {
  const JinjaToken token = tokens_.Take();
  std::string digits = absl::StrReplaceAll(token.text, {{"_", ""}});
  int base = 10;
  if (token.kind == TokenKind::kInteger && digits.size() > 1 && digits[0] == '0') {
    const char letter = absl::ascii_tolower(static_cast<unsigned char>(digits[1]));
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) digits.erase(0, 2);
  }
  const char* last = digits.data() + digits.size();
  JinjaValue value;
  std::from_chars_result end{};
  if (token.kind == TokenKind::kInteger) {
    int64_t number = 0;
    end = std::from_chars(digits.data(), last, number, base);
    value = JinjaValue::Integer(number);
  } else {
    double number = 0;
    end = std::from_chars(digits.data(), last, number);
    value = JinjaValue::Float(number);
  }
  if (end.ec != std::errc() || end.ptr != last) {
    return tokens_.Refused(absl::StrCat("the number ", token.text, " is not supported"));
  }
  return Finish(Literal(std::move(value)), token);
}

ExpressionParser::Result ExpressionParser::ParseParenthesised() {
  const JinjaToken start = tokens_.Take();
  if (tokens_.TakeOperator(")")) return Make(Kind::kTuple, start, {});
  ASSIGN_OR_RETURN(JinjaExpressionPtr expression, ParseTuple());
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  expression->place = tokens_.PlaceFrom(start);
  return expression;
}

ExpressionParser::Result ExpressionParser::ParseListLiteral() {
  const JinjaToken start = tokens_.Take();
  std::vector<JinjaExpressionPtr> elements;
  while (!tokens_.TakeOperator("]")) {
    if (!elements.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (!elements.empty() && tokens_.TakeOperator("]")) break;
    ASSIGN_OR_RETURN(JinjaExpressionPtr element, Parse());
    elements.push_back(std::move(element));
  }
  return Make(Kind::kList, start, std::move(elements));
}

ExpressionParser::Result ExpressionParser::ParseMappingLiteral() {
  const JinjaToken start = tokens_.Take();
  std::vector<JinjaExpressionPtr> entries;
  while (!tokens_.TakeOperator("}")) {
    if (!entries.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (!entries.empty() && tokens_.TakeOperator("}")) break;
    ASSIGN_OR_RETURN(JinjaExpressionPtr key, Parse());
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(JinjaExpressionPtr value, Parse());
    entries.push_back(std::move(key));
    entries.push_back(std::move(value));
  }
  return Make(Kind::kMapping, start, std::move(entries));
}

ExpressionParser::Result ExpressionParser::ParsePostfix(JinjaExpressionPtr expression) {
  while (true) {
    if (tokens_.IsOperator(".") || tokens_.IsOperator("[")) {
      ASSIGN_OR_RETURN(expression, ParseSubscript(std::move(expression)));
    } else if (tokens_.IsOperator("(")) {
      auto call = std::make_unique<JinjaExpression>();
      call->kind = Kind::kCall;
      JinjaToken start = tokens_.Peek();
      start.first = expression->place.first;
      start.line = expression->place.line;
      call->operands = ListOf(std::move(expression));
      RETURN_IF_ERROR(ParseArguments(*call));
      ASSIGN_OR_RETURN(expression, Finish(std::move(call), start));
    } else {
      return expression;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseSubscript(JinjaExpressionPtr base) {
  JinjaToken start = tokens_.Take();
  const bool is_attribute = start.text == ".";
  start.first = base->place.first;
  start.line = base->place.line;
  if (is_attribute) {
    auto node = std::make_unique<JinjaExpression>();
    node->kind = Kind::kAttribute;
    node->operands = ListOf(std::move(base));
    if (tokens_.Is(TokenKind::kInteger)) {
      // a.0 is a[0]
      ASSIGN_OR_RETURN(JinjaExpressionPtr index, ParseNumber());
      node->kind = Kind::kItem;
      node->operands.push_back(std::move(index));
    } else {
      ASSIGN_OR_RETURN(node->name, tokens_.ExpectName());
    }
    return Finish(std::move(node), start);
  }
  std::vector<JinjaExpressionPtr> parts = ListOf(std::move(base));
  bool is_slice = false;
  while (true) {
    JinjaExpressionPtr part;
    if (!tokens_.IsOperator(":") && !tokens_.IsOperator("]")) {
      ASSIGN_OR_RETURN(part, Parse());
    }
    parts.push_back(std::move(part));
    if (!tokens_.TakeOperator(":")) break;
    is_slice = true;
  }
  if (parts.size() > 4 || (!is_slice && parts[1] == nullptr)) {
    return tokens_.Unexpected("a subscript");
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (!is_slice) return Make(Kind::kItem, start, std::move(parts));
  parts.resize(4);
  return Make(Kind::kSlice, start, std::move(parts));
}

ExpressionParser::Result ExpressionParser::ParseFiltersAndTests(JinjaExpressionPtr expression) {
  while (true) {
    if (tokens_.IsOperator("|")) {
      ASSIGN_OR_RETURN(expression, ParseFilter(std::move(expression)));
    } else if (tokens_.IsName("is")) {
      ASSIGN_OR_RETURN(expression, ParseTest(std::move(expression)));
    } else if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(expression, ParsePostfix(std::move(expression)));
    } else {
      return expression;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseFilter(JinjaExpressionPtr base) {
  JinjaToken start = tokens_.Peek();
  // The first filter of a block has no | before it.
  tokens_.TakeOperator("|");
  start.first = base->place.first;
  start.line = base->place.line;
  auto node = std::make_unique<JinjaExpression>();
  node->kind = Kind::kFilter;
  node->operands = ListOf(std::move(base));
  ASSIGN_OR_RETURN(node->name, tokens_.ExpectName());
  node->builtin = FindJinjaFilter(node->name);
  if (node->builtin == nullptr) {
    return tokens_.Refused(absl::StrCat("filter ", node->name, " is not supported"));
  }
  if (tokens_.IsOperator("(")) RETURN_IF_ERROR(ParseArguments(*node));
  return Finish(std::move(node), start);
}

ExpressionParser::Result ExpressionParser::ParseTest(JinjaExpressionPtr base) {
  JinjaToken start = tokens_.Take();
  start.first = base->place.first;
  start.line = base->place.line;
  const bool negated = tokens_.TakeName("not");
  auto node = std::make_unique<JinjaExpression>();
  node->kind = Kind::kTest;
  node->operands = ListOf(std::move(base));
  ASSIGN_OR_RETURN(node->name, tokens_.ExpectName());
  node->builtin = FindJinjaTest(node->name);
  if (node->builtin == nullptr) {
    return tokens_.Refused(absl::StrCat("test ", node->name, " is not supported"));
  }
  const bool takes_argument = !node->builtin->parameters.empty();
  if (tokens_.IsOperator("(")) {
    RETURN_IF_ERROR(ParseArguments(*node));
  } else if (takes_argument) {
    // `x is divisibleby 3`: one argument without brackets.
    ASSIGN_OR_RETURN(JinjaExpressionPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    node->arguments.push_back(
        {.kind = JinjaArgumentNode::Kind::kPositional, .name = "", .value = std::move(argument)});
  }
  ASSIGN_OR_RETURN(JinjaExpressionPtr test, Finish(std::move(node), start));
  if (!negated) return test;
  return Make(Kind::kNot, start, ListOf(std::move(test)));
}

absl::Status ExpressionParser::ParseArguments(JinjaExpression& call) {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  while (!tokens_.TakeOperator(")")) {
    if (!call.arguments.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (!call.arguments.empty() && tokens_.TakeOperator(")")) break;
    ASSIGN_OR_RETURN(JinjaArgumentNode argument, ParseArgument(call));
    call.arguments.push_back(std::move(argument));
  }
  return absl::OkStatus();
}

absl::StatusOr<JinjaArgumentNode> ExpressionParser::ParseArgument(const JinjaExpression& call) {
  using ArgumentKind = JinjaArgumentNode::Kind;
  const auto has = [&call](ArgumentKind kind) {
    return std::any_of(call.arguments.begin(), call.arguments.end(),
                       [kind](const JinjaArgumentNode& argument) { return argument.kind == kind; });
  };
  JinjaArgumentNode argument;
  if (tokens_.TakeOperator("*")) {
    argument.kind = ArgumentKind::kSpread;
  } else if (tokens_.TakeOperator("**")) {
    argument.kind = ArgumentKind::kSpreadNamed;
  } else if (tokens_.Is(TokenKind::kName) && tokens_.IsOperator("=", 1)) {
    argument.kind = ArgumentKind::kNamed;
    argument.name = tokens_.Take().text;
    tokens_.Take();
  }
  const bool in_order = !has(ArgumentKind::kSpreadNamed) &&
                        (argument.kind != ArgumentKind::kSpread || !has(ArgumentKind::kSpread)) &&
                        (argument.kind != ArgumentKind::kPositional ||
                         (!has(ArgumentKind::kNamed) && !has(ArgumentKind::kSpread)));
  if (!in_order) return tokens_.Refused("an argument behind those that must be last");
  ASSIGN_OR_RETURN(argument.value, Parse());
  return argument;
}

ExpressionParser::Result ExpressionParser::ParseBlockFilters() {
  auto captured = std::make_unique<JinjaExpression>();
  captured->kind = Kind::kCaptured;
  const JinjaToken start = tokens_.Peek();
  ASSIGN_OR_RETURN(JinjaExpressionPtr expression, Finish(std::move(captured), start));
  do {
    ASSIGN_OR_RETURN(expression, ParseFilter(std::move(expression)));
  } while (tokens_.IsOperator("|"));
  return expression;
}

absl::StatusOr<std::vector<JinjaSignature::Parameter>> ExpressionParser::ParseParameters() {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  std::vector<JinjaSignature::Parameter> parameters;
  while (!tokens_.TakeOperator(")")) {
    if (!parameters.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    JinjaSignature::Parameter parameter;
    ASSIGN_OR_RETURN(parameter.name, tokens_.ExpectName());
    if (tokens_.TakeOperator("=")) {
      ASSIGN_OR_RETURN(parameter.fallback, Parse());
    } else if (!parameters.empty() && parameters.back().fallback != nullptr) {
      return tokens_.Refused("a parameter without a default behind one that has it");
    }
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

}  // namespace nightshift
