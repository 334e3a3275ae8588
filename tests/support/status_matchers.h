// gMock matchers for absl::Status and absl::StatusOr, which Debian 12's Abseil does not ship.
#pragma once

#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

inline const absl::Status& StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& value) {
  return value.status();
}

MATCHER(IsOk, "is OK") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

// A status with this code whose message contains `text`.
MATCHER_P2(StatusIs, code, text, "has the code and a message that contains the text") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         std::string(StatusOf(arg).message()).find(text) != std::string::npos;
}

}  // namespace nightshift

#define ASSERT_OK(expression) ASSERT_THAT(expression, ::nightshift::IsOk())
#define EXPECT_OK(expression) EXPECT_THAT(expression, ::nightshift::IsOk())
#define ASSERT_OK_AND_ASSIGN(target, expression)                                             \
  ASSERT_OK_AND_ASSIGN_INNER(ASSERT_OK_CONCAT(status_or_value_, __LINE__), target, expression)
#define ASSERT_OK_CONCAT_INNER(a, b) a##b
#define ASSERT_OK_CONCAT(a, b) ASSERT_OK_CONCAT_INNER(a, b)
#define ASSERT_OK_AND_ASSIGN_INNER(temporary, target, expression) \
  auto temporary = (expression);                                  \
  ASSERT_OK(temporary);                                           \
  target = std::move(temporary).value()
