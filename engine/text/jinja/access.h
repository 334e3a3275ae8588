// What can be taken out of a JinjaValue: attributes, items, slices, elements. All pay the budget.
// Errors: INVALID_ARGUMENT saying what the type does not have; RESOURCE_EXHAUSTED.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

// value.name and value[key]: what is absent is undefined, and only using that is an error.
absl::StatusOr<JinjaValue> GetAttribute(const JinjaValue& value, const std::string& name);
absl::StatusOr<JinjaValue> GetItem(const JinjaValue& value, const JinjaValue& key,
                                   JinjaBudget& budget);
// value[a][b]... for the path "a.b", as filters take it in `attribute`; whole numbers index.
// `absent` (unless undefined) stands for what is undefined on the way.
absl::StatusOr<JinjaValue> GetPath(const JinjaValue& value, const JinjaValue& path,
                                   const JinjaValue& absent, JinjaBudget& budget);

// value[start:stop:step] with Python's rules for absent and negative bounds.
struct JinjaSlice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
absl::StatusOr<JinjaValue> Slice(const JinjaValue& value, const JinjaSlice& slice,
                                 JinjaBudget& budget);

// The elements of a list, the characters of a text, the keys of a mapping; of undefined, none.
// An iterator gives what is left of it, and then nothing.
absl::StatusOr<std::vector<JinjaValue>> Elements(const JinjaValue& value, JinjaBudget& budget);
absl::StatusOr<int64_t> Length(const JinjaValue& value, JinjaBudget& budget);

}  // namespace nightshift
