#include "engine/text/jinja/builtins.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Kind = JinjaValue::Kind;

absl::Status Refused(const JinjaBuiltin& builtin, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(builtin.name, ": ", what));
}

// The number of named parameters, and whether a "*" follows them.
size_t CountNamed(const JinjaBuiltin& builtin, bool& takes_rest) {
  takes_rest = !builtin.parameters.empty() && absl::string_view(builtin.parameters.back()) == "*";
  return builtin.parameters.size() - (takes_rest ? 1 : 0);
}

absl::StatusOr<JinjaArguments> Bind(const JinjaBuiltin& builtin, JinjaCall call) {
  bool takes_rest = false;
  const size_t named = CountNamed(builtin, takes_rest);
  JinjaArguments arguments;
  arguments.values.resize(named);
  std::vector<bool>& given = arguments.given;
  given.resize(named);
  for (size_t i = 0; i < call.positional.size(); ++i) {
    if (i < named) {
      arguments.values[i] = std::move(call.positional[i]);
      given[i] = true;
    } else if (takes_rest) {
      arguments.rest.positional.push_back(std::move(call.positional[i]));
    } else {
      return Refused(builtin, absl::StrCat(call.positional.size(), " arguments, takes ", named));
    }
  }
  for (auto& [name, value] : call.keywords) {
    size_t place = 0;
    while (place < named && name != builtin.parameters[place])
      ++place;
    if (place < named && !given[place]) {
      arguments.values[place] = std::move(value);
      given[place] = true;
    } else if (place == named && takes_rest) {
      arguments.rest.keywords.emplace_back(std::move(name), std::move(value));
    } else {
      return Refused(builtin, absl::StrCat("argument ", name,
                                           place < named ? " given twice" : " is not known"));
    }
  }
  for (size_t i = 0; i < builtin.required; ++i) {
    if (!given[i]) return Refused(builtin, absl::StrCat("no argument ", builtin.parameters[i]));
  }
  return arguments;
}

absl::Status WrongType(absl::string_view wanted, const JinjaValue& value) {
  if (value.Is(Kind::kUndefined)) return absl::InvalidArgumentError(value.undefined_what());
  return absl::InvalidArgumentError(absl::StrCat(wanted, " wanted, found ", value.TypeName()));
}

}  // namespace

bool JinjaArguments::Has(size_t index) const {
  return given[index] && !values[index].Is(Kind::kNone);
}

absl::StatusOr<int64_t> JinjaArguments::Integer(size_t index, int64_t absent) const {
  if (!Has(index)) return absent;
  const JinjaValue& value = values[index];
  if (!value.IsNumber() || value.Is(Kind::kFloat)) return WrongType("a whole number", value);
  return value.integer();
}

absl::StatusOr<bool> JinjaArguments::Bool(size_t index, bool absent) const {
  if (!Has(index)) return absent;
  return values[index].IsTrue();
}

absl::StatusOr<const OriginText*> JinjaArguments::Text(size_t index) const {
  if (!Has(index)) return nullptr;
  if (!values[index].Is(Kind::kText)) return WrongType("text", values[index]);
  return &values[index].text();
}

absl::StatusOr<const OriginText*> JinjaArguments::RequiredText(size_t index) const {
  if (!values[index].Is(Kind::kText)) return WrongType("text", values[index]);
  return &values[index].text();
}

const JinjaBuiltin* FindBuiltin(const std::vector<JinjaBuiltin>& table, absl::string_view name) {
  const auto row = std::find_if(table.begin(), table.end(), [name](const JinjaBuiltin& builtin) {
    return name == builtin.name;
  });
  return row == table.end() ? nullptr : &*row;
}

absl::StatusOr<JinjaValue> RunJinjaBuiltin(const JinjaBuiltin& builtin, JinjaContext& context,
                                           const JinjaValue& self, JinjaCall call) {
  ASSIGN_OR_RETURN(const JinjaArguments arguments, Bind(builtin, std::move(call)));
  absl::StatusOr<JinjaValue> result = builtin.run(context, self, arguments);
  if (!result.ok() && absl::IsInvalidArgument(result.status())) {
    return Refused(builtin, result.status().message());
  }
  return result;
}

}  // namespace nightshift
