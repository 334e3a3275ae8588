// Methods of lists, mappings and loops, and which methods a value has.
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/text/jinja/access.h"
#include "engine/text/jinja/builtins.h"
#include "engine/text/jinja/operations.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;
using Result = absl::StatusOr<JinjaValue>;

Result CountInList(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  int64_t count = 0;
  for (const JinjaValue& item : self.items()) {
    ASSIGN_OR_RETURN(const bool equal, Equal(item, arguments[0], context.budget));
    count += equal ? 1 : 0;
  }
  return JinjaValue::Integer(count);
}

Result IndexInList(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  for (size_t i = 0; i < self.items().size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, Equal(self.items()[i], arguments[0], context.budget));
    if (equal) return JinjaValue::Integer(static_cast<int64_t>(i));
  }
  return absl::InvalidArgumentError("the value is not in the list");
}

Result Copy(JinjaContext& /*context*/, const JinjaValue& self,
            const JinjaArguments& /*arguments*/) {
  return self;
}

Result Get(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  const JinjaValue* found = nullptr;
  if (arguments[0].Is(Kind::kText)) {
    RETURN_IF_ERROR(context.budget.SpendBytes(arguments[0].text().size()));
  }
  if (!arguments[0].Is(Kind::kUndefined)) {
    ASSIGN_OR_RETURN(found, self.mapping().Find(arguments[0]));
  }
  if (found != nullptr) return *found;
  return arguments.given[1] ? arguments[1] : JinjaValue::None();
}

Result Items(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendSteps(self.mapping().entries.size()));
  std::vector<JinjaValue> pairs;
  for (const auto& [key, value] : self.mapping().entries) {
    ASSIGN_OR_RETURN(JinjaValue pair, JinjaValue::List({key, value}, SequenceKind::kTuple));
    pairs.push_back(std::move(pair));
  }
  return JinjaValue::List(std::move(pairs), SequenceKind::kItems);
}

Result Keys(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  ASSIGN_OR_RETURN(std::vector<JinjaValue> keys, Elements(self, context.budget));
  return JinjaValue::List(std::move(keys), SequenceKind::kKeys);
}

Result Values(JinjaContext& context, const JinjaValue& self, const JinjaArguments& /*arguments*/) {
  RETURN_IF_ERROR(context.budget.SpendSteps(self.mapping().entries.size()));
  std::vector<JinjaValue> values;
  for (const auto& [key, value] : self.mapping().entries)
    values.push_back(value);
  return JinjaValue::List(std::move(values), SequenceKind::kValues);
}

// Whether the values differ from those of the last call.
Result Changed(JinjaContext& context, const JinjaValue& self, const JinjaArguments& arguments) {
  JinjaLoop& loop = self.loop();
  ASSIGN_OR_RETURN(const JinjaValue now, JinjaValue::List(arguments.rest.positional));
  if (loop.last_seen == 0) {
    context.last_seen.push_back(now);
    loop.last_seen = context.last_seen.size();
    return JinjaValue::Bool(true);
  }
  JinjaValue& before = context.last_seen[loop.last_seen - 1];
  ASSIGN_OR_RETURN(const bool equal, Equal(before, now, context.budget));
  if (equal) return JinjaValue::Bool(false);
  before = now;
  return JinjaValue::Bool(true);
}

Result Cycle(JinjaContext& /*context*/, const JinjaValue& self, const JinjaArguments& arguments) {
  const std::vector<JinjaValue>& values = arguments.rest.positional;
  if (values.empty()) return absl::InvalidArgumentError("no values to cycle through");
  return values[self.loop().index % values.size()];
}

// Of lists, tuples and ranges.
const std::vector<JinjaBuiltin>& SequenceMethods() {
  static const std::vector<JinjaBuiltin> table = {
      {"count", {"value"}, 1, CountInList},
      {"index", {"value"}, 1, IndexInList},
  };
  return table;
}

const std::vector<JinjaBuiltin>& ListMethods() {
  static const std::vector<JinjaBuiltin> table = {{"copy", {}, 0, Copy}};
  return table;
}

const std::vector<JinjaBuiltin>& MappingMethods() {
  static const std::vector<JinjaBuiltin> table = {
      {"copy", {}, 0, Copy}, {"get", {"key", "default"}, 1, Get}, {"items", {}, 0, Items},
      {"keys", {}, 0, Keys}, {"values", {}, 0, Values},
  };
  return table;
}

const std::vector<JinjaBuiltin>& LoopMethods() {
  static const std::vector<JinjaBuiltin> table = {
      {"changed", {"*"}, 0, Changed},
      {"cycle", {"*"}, 0, Cycle},
  };
  return table;
}

const JinjaBuiltin* FindListMethod(SequenceKind sequence, absl::string_view name) {
  if (sequence != SequenceKind::kList && sequence != SequenceKind::kTuple &&
      sequence != SequenceKind::kRange) {
    return nullptr;
  }
  const JinjaBuiltin* method = FindBuiltin(SequenceMethods(), name);
  if (method != nullptr || sequence != SequenceKind::kList) return method;
  return FindBuiltin(ListMethods(), name);
}

}  // namespace

const JinjaBuiltin* FindJinjaMethod(const JinjaValue& value, absl::string_view name) {
  switch (value.kind()) {
    case Kind::kText:
      return FindBuiltin(TextMethods(), name);
    case Kind::kList:
      return FindListMethod(value.sequence(), name);
    case Kind::kMapping:
      return FindBuiltin(MappingMethods(), name);
    case Kind::kLoop:
      return FindBuiltin(LoopMethods(), name);
    default:
      return nullptr;
  }
}

}  // namespace nightshift
