// What Python's operators and conversions mean on JinjaValues. All pay the budget for their work.
// Errors: INVALID_ARGUMENT saying which types do not go together; RESOURCE_EXHAUSTED.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

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
// +value: the number itself.
absl::StatusOr<JinjaValue> Plus(const JinjaValue& value);

absl::StatusOr<bool> Equal(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget);
// Negative, zero or positive.
absl::StatusOr<int> Compare(const JinjaValue& left, const JinjaValue& right, JinjaBudget& budget);
absl::StatusOr<bool> Contains(const JinjaValue& container, const JinjaValue& item,
                              JinjaBudget& budget);

// The items in Python's order, stable; `descending` turns the order round, not that of equal ones.
// `keys` are compared, one of each item.
absl::StatusOr<std::vector<JinjaValue>> SortBy(std::vector<JinjaValue> items,
                                               const std::vector<JinjaValue>& keys, bool descending,
                                               JinjaBudget& budget);

// Use of what is not defined, as an error.
absl::Status UseOfUndefined(const JinjaValue& value);

}  // namespace nightshift
