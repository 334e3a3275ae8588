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
  enum class Kind : uint8_t {
    kPositional,
    kNamed,        // name=value
    kSpread,       // *value
    kSpreadNamed,  // **value
  };
  Kind kind = Kind::kPositional;
  std::string name;
  JinjaExpressionPtr value;
};

// One expression. Chains of operators of one level are one node with many operands, so that only
// true nesting is depth.
struct JinjaExpression {
  enum class Kind : uint8_t {
    kLiteral,      // value
    kName,         // name
    kList,         // operands
    kTuple,        // operands
    kMapping,      // operands: key, value, key, value...
    kArithmetic,   // operands[0] operators[0] operands[1] ..., from the left
    kComparison,   // the same; true if each neighbouring pair holds
    kConcatenate,  // operands[0] ~ operands[1] ~ ...
    kAnd,          // operands
    kOr,           // operands
    kNot,          // operands[0]
    kNegate,       // operands[0]
    kPlus,         // operands[0]
    kConditional,  // operands[0] if operands[1] else operands[2] (may be null)
    kAttribute,    // operands[0].name
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], each may be null
    kCall,         // operands[0](arguments)
    kFilter,       // operands[0] | name(arguments)
    kTest,         // operands[0] is name(arguments)
    kCaptured,     // the output of the block that is being filtered
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

// What {% set %} and {% for %} assign to: a name, an attribute of a namespace, or several of them.
struct JinjaTarget {
  std::string name;
  std::string attribute;           // {% set name.attribute = ... %}
  std::vector<JinjaTarget> parts;  // not empty: unpacking
};

// Of a macro, or of what a call block hands to one.
struct JinjaSignature {
  struct Parameter {
    std::string name;
    JinjaExpressionPtr fallback;  // null: undefined when not given
  };
  std::vector<Parameter> parameters;
  // Names that the body uses, without which a call may not give what they hold.
  bool uses_caller = false;
  bool uses_varargs = false;
  bool uses_kwargs = false;
};

struct JinjaStatement {
  enum class Kind : uint8_t {
    kText,         // text
    kOutput,       // {{ expression }}
    kIf,           // branches
    kFor,          // {% for target in expression if filter %}: branches[0] the body, [1] the else
    kSet,          // {% set target = expression %}
    kSetBlock,     // {% set target %} branches[0] {% endset %}; expression filters it, or is null
    kFilterBlock,  // {% filter %} branches[0] {% endfilter %}; expression filters it
    kScope,        // {% generation %} branches[0], whose names end with it
    kWith,         // {% with a = x, ... %}: assignments, branches[0]
    kMacro,        // {% macro target signature %} branches[0]
    kCallBlock,    // {% call signature expression %} branches[0]; expression is a kCall
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
  bool recursive = false;  // of kFor
  std::vector<std::pair<std::string, JinjaExpressionPtr>> assignments;
  JinjaSignature signature;
};

}  // namespace nightshift
