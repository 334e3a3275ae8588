#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/evaluator.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using ValueKind = JinjaValue::Kind;

}  // namespace

JinjaValue JinjaEvaluator::MakeMacro(const JinjaStatement& definition) {
  if (kept_scopes_.empty() || kept_scopes_.back() != scope_) kept_scopes_.push_back(scope_);
  macros_.push_back(std::make_unique<JinjaMacro>());
  *macros_.back() = {.definition = &definition, .scope = scope_};
  return JinjaValue::Macro(macros_.back().get());
}

// The macro gets the block as the macro `caller`.
absl::Status JinjaEvaluator::RunCallBlock(const JinjaStatement& statement) {
  const JinjaExpression& node = *statement.expression;
  ASSIGN_OR_RETURN(const JinjaValue function, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(JinjaCall call, EvaluateArguments(node));
  call.keywords.emplace_back("caller", MakeMacro(statement));
  ASSIGN_OR_RETURN(const JinjaValue result, CallValue(node, function, std::move(call)));
  return EmitValue(result, statement.place);
}

// Defines the parameters in the current scope, which is the call's own.
absl::Status JinjaEvaluator::BindParameters(const JinjaMacro& macro, JinjaCall call) {
  const JinjaSignature& signature = macro.definition->signature;
  const size_t num_parameters = signature.parameters.size();
  const auto refused = [&macro, this](absl::string_view what) {
    return At(macro.definition->place, absl::InvalidArgumentError(absl::StrCat(
                                           "macro ", macro.definition->target.name, ": ", what)));
  };
  if (call.positional.size() > num_parameters && !signature.uses_varargs) {
    return refused(absl::StrCat(call.positional.size(), " arguments, takes ", num_parameters));
  }
  const auto take_keyword = [&call](const std::string& keyword) {
    std::optional<JinjaValue> taken;
    const auto place = std::find_if(call.keywords.begin(), call.keywords.end(),
                                    [&](const auto& pair) { return pair.first == keyword; });
    if (place != call.keywords.end()) {
      taken = std::move(place->second);
      call.keywords.erase(place);
    }
    return taken;
  };
  for (size_t i = 0; i < num_parameters; ++i) {
    const JinjaSignature::Parameter& parameter = signature.parameters[i];
    std::optional<JinjaValue> value;
    if (i < call.positional.size()) {
      value = std::move(call.positional[i]);
    } else {
      value = take_keyword(parameter.name);
    }
    if (!value.has_value() && parameter.fallback != nullptr) {
      ASSIGN_OR_RETURN(value, Evaluate(*parameter.fallback));
    }
    scope_->names[parameter.name] = value.has_value()
                                        ? *std::move(value)
                                        : JinjaValue::Undefined(absl::StrCat(
                                              "parameter '", parameter.name, "' was not provided"));
  }
  if (signature.uses_caller && scope_->names.find("caller") == scope_->names.end()) {
    scope_->names["caller"] =
        take_keyword("caller").value_or(JinjaValue::Undefined("no caller is defined"));
  }
  if (signature.uses_kwargs) {
    std::vector<std::pair<JinjaValue, JinjaValue>> entries;
    for (auto& [keyword, value] : call.keywords)
      entries.emplace_back(JinjaValue::Text(keyword, /*trusted=*/true), std::move(value));
    ASSIGN_OR_RETURN(scope_->names["kwargs"], JinjaValue::Mapping(std::move(entries)));
  } else if (!call.keywords.empty()) {
    return refused(absl::StrCat("argument ", call.keywords[0].first, " is not known"));
  }
  if (signature.uses_varargs) {
    const size_t first = std::min(num_parameters, call.positional.size());
    call.positional.erase(call.positional.begin(),
                          call.positional.begin() + static_cast<std::ptrdiff_t>(first));
    ASSIGN_OR_RETURN(scope_->names["varargs"],
                     JinjaValue::List(std::move(call.positional), SequenceKind::kTuple));
  }
  return absl::OkStatus();
}

JinjaEvaluator::Result JinjaEvaluator::CallMacro(const JinjaMacro& macro, JinjaCall call) {
  const DepthGuard guard(depth_);
  const ScopeGuard scope(*this, macro.scope.lock());
  RETURN_IF_ERROR(BindParameters(macro, std::move(call)));
  OriginText outer = std::exchange(output_, OriginText());
  const absl::Status status = RunBlock(macro.definition->branches[0].body).status();
  JinjaValue written = JinjaValue::Text(std::exchange(output_, std::move(outer)));
  RETURN_IF_ERROR(status);
  return written;
}

JinjaEvaluator::Result JinjaEvaluator::CallLoop(const JinjaValue& loop, const JinjaCall& call) {
  const JinjaStatement* statement = loop.loop().recursive;
  const std::shared_ptr<JinjaScope> outer_scope = loop.loop().outer.lock();
  if (statement == nullptr || outer_scope == nullptr) {
    return absl::InvalidArgumentError("only a loop marked as recursive can be called, inside it");
  }
  if (call.positional.size() != 1 || !call.keywords.empty()) {
    return absl::InvalidArgumentError("loop() takes what to run over");
  }
  const DepthGuard guard(depth_);
  RETURN_IF_ERROR(CheckDepth(statement->place));
  const ScopeGuard scope(*this, outer_scope);
  OriginText outer = std::exchange(output_, OriginText());
  const absl::Status status =
      RunFor(*statement, call.positional[0], loop.loop().depth + 1).status();
  JinjaValue written = JinjaValue::Text(std::exchange(output_, std::move(outer)));
  RETURN_IF_ERROR(status);
  return written;
}

JinjaEvaluator::Result JinjaEvaluator::CallValue(const JinjaExpression& node,
                                                 const JinjaValue& function, JinjaCall call) {
  if (function.Is(ValueKind::kLoop)) return CallLoop(function, call);
  if (function.Is(ValueKind::kUndefined)) {
    return At(node.place, absl::InvalidArgumentError(function.undefined_what()));
  }
  if (!function.Is(ValueKind::kCallable)) {
    return At(node.place,
              absl::InvalidArgumentError(absl::StrCat(function.TypeName(), " cannot be called")));
  }
  const JinjaCallable& callable = function.callable();
  if (callable.macro != nullptr) return CallMacro(*callable.macro, std::move(call));
  const JinjaValue none;
  Result result =
      RunJinjaBuiltin(*callable.builtin, context_, callable.self == nullptr ? none : *callable.self,
                      std::move(call));
  RETURN_IF_ERROR(At(node.place, result.status()));
  return result;
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateCall(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue function, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(JinjaCall call, EvaluateArguments(node));
  return CallValue(node, function, std::move(call));
}

JinjaEvaluator::Result JinjaEvaluator::EvaluateBuiltin(const JinjaExpression& node) {
  ASSIGN_OR_RETURN(const JinjaValue value, Evaluate(*node.operands[0]));
  ASSIGN_OR_RETURN(JinjaCall call, EvaluateArguments(node));
  Result result = RunJinjaBuiltin(*node.builtin, context_, value, std::move(call));
  RETURN_IF_ERROR(At(node.place, result.status()));
  return result;
}

absl::StatusOr<JinjaCall> JinjaEvaluator::EvaluateArguments(const JinjaExpression& node) {
  JinjaCall call;
  for (const JinjaArgumentNode& argument : node.arguments)
    RETURN_IF_ERROR(AddArgument(argument, call));
  return call;
}

absl::Status JinjaEvaluator::AddArgument(const JinjaArgumentNode& argument, JinjaCall& call) {
  ASSIGN_OR_RETURN(JinjaValue value, Evaluate(*argument.value));
  const auto add_named = [&](const std::string& name, JinjaValue named) -> absl::Status {
    for (const auto& [given, unused] : call.keywords) {
      if (given == name) {
        return At(argument.value->place,
                  absl::InvalidArgumentError(absl::StrCat("argument ", name, " given twice")));
      }
    }
    call.keywords.emplace_back(name, std::move(named));
    return absl::OkStatus();
  };
  switch (argument.kind) {
    case JinjaArgumentNode::Kind::kPositional:
      call.positional.push_back(std::move(value));
      return absl::OkStatus();
    case JinjaArgumentNode::Kind::kNamed:
      return add_named(argument.name, std::move(value));
    case JinjaArgumentNode::Kind::kSpread: {
      absl::StatusOr<std::vector<JinjaValue>> elements = Elements(value, budget_);
      RETURN_IF_ERROR(At(argument.value->place, elements.status()));
      std::move(elements->begin(), elements->end(), std::back_inserter(call.positional));
      return absl::OkStatus();
    }
    case JinjaArgumentNode::Kind::kSpreadNamed:
      break;
  }
  if (!value.Is(ValueKind::kMapping)) {
    return At(argument.value->place, absl::InvalidArgumentError("** wants a mapping"));
  }
  for (const auto& [key, entry] : value.mapping().entries) {
    if (!key.Is(ValueKind::kText)) {
      return At(argument.value->place, absl::InvalidArgumentError("** wants names as keys"));
    }
    RETURN_IF_ERROR(At(argument.value->place, budget_.SpendSteps(1 + call.keywords.size())));
    RETURN_IF_ERROR(add_named(key.text().text(), entry));
  }
  return absl::OkStatus();
}

}  // namespace nightshift
