// Global functions of chat templates.
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/conversions.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

// As Jinja's sandbox.
constexpr int64_t kMaxRange = 100'000;
// A message is for a person to read.
constexpr size_t kMaxRaisedBytes = 1000;

absl::StatusOr<JinjaValue> Range(JinjaContext& context, const JinjaValue& /*self*/,
                                 const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(int64_t start, arguments.Integer(0, 0));
  ASSIGN_OR_RETURN(int64_t stop, arguments.Integer(1, 0));
  ASSIGN_OR_RETURN(const int64_t step, arguments.Integer(2, 1));
  if (!arguments.Has(1)) std::swap(start, stop);
  if (step == 0) return absl::InvalidArgumentError("step is zero");
  std::vector<JinjaValue> numbers;
  for (int64_t i = start; step > 0 ? i < stop : i > stop;) {
    if (numbers.size() == static_cast<size_t>(kMaxRange)) {
      return absl::ResourceExhaustedError(
          absl::StrCat("range of more than ", kMaxRange, " numbers"));
    }
    numbers.push_back(JinjaValue::Integer(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  RETURN_IF_ERROR(context.budget.SpendSteps(numbers.size()));
  return JinjaValue::List(std::move(numbers));
}

absl::StatusOr<JinjaValue> Dict(JinjaContext& /*context*/, const JinjaValue& /*self*/,
                                const JinjaArguments& arguments) {
  std::vector<std::pair<OriginText, JinjaValue>> entries;
  if (arguments[0].Is(Kind::kMapping)) entries = arguments[0].mapping().entries;
  if (arguments.Has(0) && !arguments[0].Is(Kind::kMapping)) {
    return absl::InvalidArgumentError("a mapping wanted");
  }
  for (const auto& [name, value] : arguments.rest.keywords) {
    entries.emplace_back(OriginText(name, /*trusted=*/true), value);
  }
  return JinjaValue::Mapping(std::move(entries));
}

absl::StatusOr<JinjaValue> MakeNamespace(JinjaContext& context, const JinjaValue& /*self*/,
                                         const JinjaArguments& arguments) {
  JinjaNamespace& space = *context.namespaces.emplace_back(std::make_unique<JinjaNamespace>());
  if (arguments[0].Is(Kind::kMapping)) {
    for (const auto& [key, value] : arguments[0].mapping().entries) {
      space.values[key.text()] = value;
    }
  }
  for (const auto& [name, value] : arguments.rest.keywords)
    space.values[name] = value;
  return JinjaValue::Namespace(&space);
}

absl::StatusOr<JinjaValue> RaiseException(JinjaContext& context, const JinjaValue& /*self*/,
                                          const JinjaArguments& arguments) {
  ASSIGN_OR_RETURN(const OriginText message, ToText(arguments[0], context.budget));
  return absl::InvalidArgumentError(message.text().substr(0, kMaxRaisedBytes));
}

const std::vector<JinjaBuiltin>& Functions() {
  static const std::vector<JinjaBuiltin> table = {
      {"dict", {"mapping", "*"}, 0, Dict},
      {"namespace", {"mapping", "*"}, 0, MakeNamespace},
      {"raise_exception", {"message"}, 1, RaiseException},
      {"range", {"start", "stop", "step"}, 1, Range},
  };
  return table;
}

}  // namespace

const JinjaBuiltin* FindJinjaFunction(absl::string_view name) {
  return FindBuiltin(Functions(), name);
}

}  // namespace nightshift
