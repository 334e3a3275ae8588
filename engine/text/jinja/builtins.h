// Filters, tests, methods and global functions: tables of rows. Adding one is adding a row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

// Arguments as a call writes them.
struct JinjaCall {
  std::vector<JinjaValue> positional;
  std::vector<std::pair<std::string, JinjaValue>> keywords;
};

// Arguments as a builtin receives them: one value for each of its parameters, undefined where the
// call gave none, and what a trailing "*" parameter took.
struct JinjaArguments {
  std::vector<JinjaValue> values;
  std::vector<bool> given;  // one for each value
  JinjaCall rest;

  const JinjaValue& operator[](size_t index) const { return values[index]; }
  bool Has(size_t index) const;
  // Each reads one argument of a type, `absent` where the call gave none or none (null).
  // Errors: INVALID_ARGUMENT naming the wanted type.
  absl::StatusOr<int64_t> Integer(size_t index, int64_t absent) const;
  absl::StatusOr<bool> Bool(size_t index, bool absent) const;
  // nullptr where the call gave none.
  absl::StatusOr<const OriginText*> Text(size_t index) const;
  // Errors where the call gave none.
  absl::StatusOr<const OriginText*> RequiredText(size_t index) const;
};

// What builtins may touch.
struct JinjaContext {
  JinjaBudget& budget;
  // Makes a namespace that lives as long as the rendering.
  std::vector<std::unique_ptr<JinjaNamespace>>& namespaces;
  // What the method `changed` of loops was given last, one for each loop that was asked.
  std::vector<JinjaValue>& last_seen;
  // What strftime_now tells, microseconds of Unix time.
  int64_t now_us = 0;
};

// One filter, test, method or function.
struct JinjaBuiltin {
  const char* name;
  // Names in order; a last "*" takes all other arguments.
  std::vector<const char*> parameters;
  size_t required = 0;
  // `self` is the filtered or tested value, the method's object, undefined for functions.
  absl::StatusOr<JinjaValue> (*run)(JinjaContext& context, const JinjaValue& self,
                                    const JinjaArguments& arguments);
};

// nullptr if there is none of that name.
const JinjaBuiltin* FindJinjaFilter(absl::string_view name);
const JinjaBuiltin* FindJinjaTest(absl::string_view name);
const JinjaBuiltin* FindJinjaFunction(absl::string_view name);
const JinjaBuiltin* FindJinjaMethod(const JinjaValue& value, absl::string_view name);
// Not among the functions: a template has it only where the time is known.
const JinjaBuiltin* StrftimeNow();

// The tables behind these.
const std::vector<JinjaBuiltin>& TextFilters();
const std::vector<JinjaBuiltin>& SequenceFilters();
const std::vector<JinjaBuiltin>& TextMethods();

// Binds a call's arguments to the builtin's parameters and runs it.
// Errors: INVALID_ARGUMENT naming the argument; what the builtin answers.
absl::StatusOr<JinjaValue> RunJinjaBuiltin(const JinjaBuiltin& builtin, JinjaContext& context,
                                           const JinjaValue& self, JinjaCall call);

// Looks a name up in one table.
const JinjaBuiltin* FindBuiltin(const std::vector<JinjaBuiltin>& table, absl::string_view name);

}  // namespace nightshift
