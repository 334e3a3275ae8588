// What Python's operators and conversions mean on JinjaValues. All pay the budget for their work.
// Errors: INVALID_ARGUMENT saying which types do not go together; RESOURCE_EXHAUSTED.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/text/jinja/budget.h"
#include "engine/text/jinja/value.h"

namespace nightshift {

enum class JinjaOperator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kRemainder,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

absl::StatusOr<JinjaValue> ApplyOperator(JinjaOperator op, const JinjaValue& left,
                                         const JinjaValue& right, JinjaBudget& budget);
absl::StatusOr<JinjaValue> Negate(const JinjaValue& value);

absl::StatusOr<bool> Equal(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget);
// Negative, zero or positive.
absl::StatusOr<int> Compare(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget);
absl::StatusOr<bool> Contains(const JinjaValue& container, const JinjaValue& item,
                              JinjaBudget& budget);

// value.name and value[key]: what is absent is undefined, and only using that is an error.
absl::StatusOr<JinjaValue> GetAttribute(const JinjaValue& value, const std::string& name);
absl::StatusOr<JinjaValue> GetItem(const JinjaValue& value, const JinjaValue& key,
                                   JinjaBudget& budget);

// value[start:stop:step] with Python's rules for absent and negative bounds.
struct JinjaSlice {
  std::optional<int64_t> start;
  std::optional<int64_t> stop;
  int64_t step = 1;
};
absl::StatusOr<JinjaValue> Slice(const JinjaValue& value, const JinjaSlice& slice,
                                 JinjaBudget& budget);

// The elements of a list, the characters of a text, the keys of a mapping; of undefined, none.
absl::StatusOr<std::vector<JinjaValue>> Elements(const JinjaValue& value, JinjaBudget& budget);
absl::StatusOr<int64_t> Length(const JinjaValue& value, JinjaBudget& budget);

}  // namespace nightshift
