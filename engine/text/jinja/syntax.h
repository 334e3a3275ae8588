// The syntax tree of a chat template.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/jinja/operations.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

// Where something stands in the source.
struct JinjaPlace {
  int line = 1;
  size_t first = 0;  // bytes
  size_t last = 0;
};

struct JinjaExpression;
using JinjaExpressionPtr = std::unique_ptr<JinjaExpression>;

struct JinjaArgumentNode {
  std::string name;  // empty: positional
  JinjaExpressionPtr value;
};

// One expression. Chains of operators of one level are one node with many operands, so that only
// true nesting is depth.
struct JinjaExpression {
  enum class Kind : uint8_t {
    kLiteral,      // value
    kName,         // name
    kList,         // operands
    kMapping,      // operands: key, value, key, value...
    kArithmetic,   // operands[0] operators[0] operands[1] ..., from the left
    kComparison,   // the same; true if each neighbouring pair holds
    kConcatenate,  // operands[0] ~ operands[1] ~ ...
    kAnd,          // operands
    kOr,           // operands
    kNot,          // operands[0]
    kNegate,       // operands[0]
    kConditional,  // operands[0] if operands[1] else operands[2] (may be null)
    kAttribute,    // operands[0].name
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], each may be null
    kCall,         // operands[0](arguments)
    kFilter,       // operands[0] | name(arguments)
    kTest,         // operands[0] is name(arguments)
  };

  Kind kind = Kind::kLiteral;
  JinjaPlace place;
  int depth = 1;
  JinjaValue value;
  std::string name;
  const JinjaBuiltin* builtin = nullptr;  // of kFilter and kTest
  std::vector<JinjaExpressionPtr> operands;
  std::vector<JinjaOperator> operators;
  std::vector<JinjaArgumentNode> arguments;
};

struct JinjaStatement;
using JinjaBlock = std::vector<JinjaStatement>;

struct JinjaBranch {
  JinjaExpressionPtr condition;  // null: else
  JinjaBlock body;
};

// What {% set %} and {% for %} assign to: names, or one attribute of a namespace.
struct JinjaTarget {
  std::vector<std::string> names;  // more than one: unpacking
  std::string attribute;           // {% set names[0].attribute = ... %}
};

struct JinjaStatement {
  enum class Kind : uint8_t {
    kText,      // text
    kOutput,    // {{ expression }}
    kIf,        // branches
    kFor,       // {% for target in expression if filter %}: branches[0] the body, [1] the else
    kSet,       // {% set target = expression %}
    kSetBlock,  // {% set target %} branches[0] {% endset %}
    kBlock,     // branches[0], as it is
    kBreak,
    kContinue,
  };

  Kind kind = Kind::kText;
  JinjaPlace place;
  OriginText text;
  JinjaExpressionPtr expression;
  JinjaExpressionPtr filter;
  JinjaTarget target;
  std::vector<JinjaBranch> branches;
};

}  // namespace nightshift
