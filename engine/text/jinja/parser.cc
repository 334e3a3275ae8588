#include "engine/text/jinja/parser.h"

#include <algorithm>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/expression_parser.h"
#include "engine/text/jinja/lexer.h"
#include "engine/text/jinja/token_stream.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaStatement::Kind;
using TokenKind = JinjaToken::Kind;

class Parser {
 public:
  Parser(std::vector<JinjaToken> tokens, int64_t max_depth)
      : tokens_(std::move(tokens)), expressions_(tokens_, max_depth), max_depth_(max_depth) {}

  absl::StatusOr<JinjaBlock> Run() {
    ASSIGN_OR_RETURN(JinjaBlock block, ParseBlock({}));
    if (!tokens_.Is(TokenKind::kEnd)) return tokens_.Unexpected("the end of the template");
    return block;
  }

 private:
  using Words = std::vector<absl::string_view>;
  using Result = absl::StatusOr<JinjaStatement>;

  // Statements up to a tag that begins with one of `ends`, whose {% is taken; with no `ends`, up to
  // the end of the template.
  absl::StatusOr<JinjaBlock> ParseBlock(const Words& ends) {
    if (++depth_ > max_depth_) {
      return tokens_.Refused(absl::StrCat("statements nested more than ", max_depth_, " deep"));
    }
    JinjaBlock block;
    while (!tokens_.Is(TokenKind::kEnd)) {
      if (tokens_.Is(TokenKind::kBlockBegin)) {
        const JinjaToken start = tokens_.Take();
        if (std::any_of(ends.begin(), ends.end(),
                        [this](absl::string_view end) { return tokens_.IsName(end); })) {
          --depth_;
          return block;
        }
        ASSIGN_OR_RETURN(JinjaStatement statement, ParseTag(start));
        block.push_back(std::move(statement));
      } else {
        ASSIGN_OR_RETURN(JinjaStatement statement, ParseOutput());
        block.push_back(std::move(statement));
      }
    }
    if (!ends.empty()) return tokens_.Unexpected(absl::StrCat("{% ", ends.back(), " %}"));
    --depth_;
    return block;
  }

  Result ParseOutput() {
    const JinjaToken start = tokens_.Take();
    JinjaStatement statement;
    if (start.kind == TokenKind::kData) {
      statement.kind = Kind::kText;
      statement.text = OriginText(start.text, /*trusted=*/true);
      return statement;
    }
    statement.kind = Kind::kOutput;
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple());
    RETURN_IF_ERROR(tokens_.Expect(TokenKind::kVariableEnd, "}}"));
    statement.place = tokens_.PlaceFrom(start);
    return statement;
  }

  Result ParseTag(const JinjaToken& start) {
    const JinjaToken word = tokens_.Peek();
    ASSIGN_OR_RETURN(const std::string name, tokens_.ExpectName());
    static constexpr std::pair<const char*, Result (Parser::*)()> kTags[] = {
        {"for", &Parser::ParseFor},     {"if", &Parser::ParseIf},
        {"set", &Parser::ParseSet},     {"generation", &Parser::ParseGeneration},
        {"break", &Parser::ParseBreak}, {"continue", &Parser::ParseContinue},
        {"macro", &Parser::ParseMacro}, {"call", &Parser::ParseCall},
        {"with", &Parser::ParseWith},   {"filter", &Parser::ParseFilterBlock},
    };
    for (const auto& [tag, parse] : kTags) {
      if (name != tag) continue;
      ASSIGN_OR_RETURN(JinjaStatement statement, (this->*parse)());
      statement.place = {.line = start.line, .first = start.first, .last = word.last};
      return statement;
    }
    return tokens_.Refused(absl::StrCat("statement ", name, " is not supported here"));
  }

  absl::Status EndTag() { return tokens_.Expect(TokenKind::kBlockEnd, "%}"); }

  // {% end %}, whose {% has been taken.
  absl::Status TakeEnd() {
    tokens_.Take();
    return EndTag();
  }

  Result ParseIf() {
    JinjaStatement statement;
    statement.kind = Kind::kIf;
    bool has_condition = true;
    while (true) {
      JinjaBranch branch;
      if (has_condition) {
        ASSIGN_OR_RETURN(branch.condition, expressions_.ParseTuple());
      }
      RETURN_IF_ERROR(EndTag());
      const Words ends = has_condition ? Words{"elif", "else", "endif"} : Words{"endif"};
      ASSIGN_OR_RETURN(branch.body, ParseBlock(ends));
      statement.branches.push_back(std::move(branch));
      if (tokens_.IsName("endif")) break;
      has_condition = tokens_.Take().text == "elif";
    }
    RETURN_IF_ERROR(TakeEnd());
    return statement;
  }

  absl::Status CheckAssignable(const std::string& name) const {
    static constexpr absl::string_view kConstants[] = {"true", "false", "none",
                                                       "True", "False", "None"};
    if (std::find(std::begin(kConstants), std::end(kConstants), name) == std::end(kConstants)) {
      return absl::OkStatus();
    }
    return tokens_.Refused(absl::StrCat("'", name, "' cannot be assigned to"));
  }

  // a, or a.b, or (a, b).
  absl::StatusOr<JinjaTarget> ParseOneTarget(int depth) {
    if (tokens_.TakeOperator("(")) {
      ASSIGN_OR_RETURN(JinjaTarget target, ParseTarget(depth + 1));
      RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return target;
    }
    JinjaTarget target;
    ASSIGN_OR_RETURN(target.name, tokens_.ExpectName());
    RETURN_IF_ERROR(CheckAssignable(target.name));
    if (tokens_.TakeOperator(".")) {
      ASSIGN_OR_RETURN(target.attribute, tokens_.ExpectName());
    }
    return target;
  }

  // One target, or several with commas, which take a value apart.
  absl::StatusOr<JinjaTarget> ParseTarget(int depth = 0) {
    if (depth > max_depth_) {
      return tokens_.Refused(absl::StrCat("targets nested more than ", max_depth_, " deep"));
    }
    ASSIGN_OR_RETURN(JinjaTarget first, ParseOneTarget(depth));
    if (!tokens_.IsOperator(",")) return first;
    JinjaTarget target;
    target.parts.push_back(std::move(first));
    while (tokens_.TakeOperator(",")) {
      if (!tokens_.Is(TokenKind::kName) && !tokens_.IsOperator("(")) break;
      if (tokens_.IsName("in")) break;
      ASSIGN_OR_RETURN(JinjaTarget part, ParseOneTarget(depth));
      target.parts.push_back(std::move(part));
    }
    return target;
  }

  Result ParseFor() {
    JinjaStatement statement;
    statement.kind = Kind::kFor;
    ASSIGN_OR_RETURN(statement.target, ParseTarget());
    if (!tokens_.TakeName("in")) return tokens_.Unexpected("'in'");
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple(/*with_condition=*/false));
    if (tokens_.TakeName("if")) {
      ASSIGN_OR_RETURN(statement.filter, expressions_.Parse());
    }
    statement.recursive = tokens_.TakeName("recursive");
    RETURN_IF_ERROR(EndTag());
    ++loops_;
    statement.branches.resize(1);
    ASSIGN_OR_RETURN(statement.branches[0].body, ParseBlock({"else", "endfor"}));
    --loops_;
    if (tokens_.TakeName("else")) {
      RETURN_IF_ERROR(EndTag());
      statement.branches.resize(2);
      ASSIGN_OR_RETURN(statement.branches[1].body, ParseBlock({"endfor"}));
    }
    RETURN_IF_ERROR(TakeEnd());
    return statement;
  }

  Result ParseSet() {
    JinjaStatement statement;
    ASSIGN_OR_RETURN(statement.target, ParseTarget());
    if (tokens_.TakeOperator("=")) {
      statement.kind = Kind::kSet;
      ASSIGN_OR_RETURN(statement.expression, expressions_.ParseTuple());
      RETURN_IF_ERROR(EndTag());
      return statement;
    }
    statement.kind = Kind::kSetBlock;
    if (tokens_.IsOperator("|")) {
      ASSIGN_OR_RETURN(statement.expression, expressions_.ParseBlockFilters());
    }
    RETURN_IF_ERROR(EndTag());
    return ParseBody(std::move(statement), "endset");
  }

  // The rest of a statement with one body: up to and with {% end %}.
  Result ParseBody(JinjaStatement statement, absl::string_view end) {
    statement.branches.resize(1);
    ASSIGN_OR_RETURN(statement.branches[0].body, ParseBlock({end}));
    tokens_.Take();
    // {% endmacro name %} and the like are allowed.
    if (end == "endmacro" && tokens_.Is(TokenKind::kName)) tokens_.Take();
    RETURN_IF_ERROR(EndTag());
    return statement;
  }

  // Marks what the assistant wrote, for training; here it is a scope of names.
  Result ParseGeneration() {
    JinjaStatement statement;
    statement.kind = Kind::kScope;
    RETURN_IF_ERROR(EndTag());
    return ParseOutsideOfLoops(std::move(statement), "endgeneration");
  }

  // The body of what Jinja compiles to a function: no loop around it can be left from there.
  Result ParseOutsideOfLoops(JinjaStatement statement, absl::string_view end) {
    const int loops = std::exchange(loops_, 0);
    ASSIGN_OR_RETURN(statement, ParseBody(std::move(statement), end));
    loops_ = loops;
    return statement;
  }

  // The body of a macro, with notes of the special names that it uses.
  Result ParseFunction(JinjaStatement statement, absl::string_view end) {
    const size_t first = tokens_.position();
    ASSIGN_OR_RETURN(statement, ParseOutsideOfLoops(std::move(statement), end));
    statement.signature.uses_caller = tokens_.HasNameSince(first, "caller");
    statement.signature.uses_varargs = tokens_.HasNameSince(first, "varargs");
    statement.signature.uses_kwargs = tokens_.HasNameSince(first, "kwargs");
    return statement;
  }

  Result ParseMacro() {
    JinjaStatement statement;
    statement.kind = Kind::kMacro;
    ASSIGN_OR_RETURN(statement.target.name, tokens_.ExpectName());
    RETURN_IF_ERROR(CheckAssignable(statement.target.name));
    ASSIGN_OR_RETURN(statement.signature.parameters, expressions_.ParseParameters());
    RETURN_IF_ERROR(EndTag());
    return ParseFunction(std::move(statement), "endmacro");
  }

  Result ParseCall() {
    JinjaStatement statement;
    statement.kind = Kind::kCallBlock;
    statement.target.name = "caller";
    if (tokens_.IsOperator("(")) {
      ASSIGN_OR_RETURN(statement.signature.parameters, expressions_.ParseParameters());
    }
    ASSIGN_OR_RETURN(statement.expression, expressions_.Parse());
    if (statement.expression->kind != JinjaExpression::Kind::kCall) {
      return tokens_.Refused("{% call %} wants the call of a macro");
    }
    RETURN_IF_ERROR(EndTag());
    return ParseFunction(std::move(statement), "endcall");
  }

  Result ParseWith() {
    JinjaStatement statement;
    statement.kind = Kind::kWith;
    while (!tokens_.Is(TokenKind::kBlockEnd)) {
      if (!statement.assignments.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      ASSIGN_OR_RETURN(std::string name, tokens_.ExpectName());
      RETURN_IF_ERROR(CheckAssignable(name));
      RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      ASSIGN_OR_RETURN(JinjaExpressionPtr value, expressions_.Parse());
      statement.assignments.emplace_back(std::move(name), std::move(value));
    }
    RETURN_IF_ERROR(EndTag());
    return ParseBody(std::move(statement), "endwith");
  }

  Result ParseFilterBlock() {
    JinjaStatement statement;
    statement.kind = Kind::kFilterBlock;
    ASSIGN_OR_RETURN(statement.expression, expressions_.ParseBlockFilters());
    RETURN_IF_ERROR(EndTag());
    return ParseBody(std::move(statement), "endfilter");
  }

  Result ParseJump(Kind kind) {
    if (loops_ == 0) return tokens_.Refused("break or continue outside of a loop");
    RETURN_IF_ERROR(EndTag());
    JinjaStatement statement;
    statement.kind = kind;
    return statement;
  }

  Result ParseBreak() { return ParseJump(Kind::kBreak); }
  Result ParseContinue() { return ParseJump(Kind::kContinue); }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int64_t max_depth_;
  int64_t depth_ = 0;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<JinjaBlock> ParseJinja(const std::string& source, int64_t max_depth) {
  ASSIGN_OR_RETURN(std::vector<JinjaToken> tokens, LexJinja(source));
  return Parser(std::move(tokens), max_depth).Run();
}

}  // namespace nightshift
