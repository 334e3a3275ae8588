// Early returns on absl::Status, which Debian 12's Abseil does not ship.
#pragma once

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function when `expression` is not OK.
#define RETURN_IF_ERROR(expression)                          \
  do {                                                       \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                        \
    }                                                        \
  } while (false)

#define NIGHTSHIFT_CONCAT_INNER(a, b) a##b
#define NIGHTSHIFT_CONCAT(a, b) NIGHTSHIFT_CONCAT_INNER(a, b)

// Declares or assigns `target` from a StatusOr, or returns its status.
#define ASSIGN_OR_RETURN(target, expression) \
  ASSIGN_OR_RETURN_INNER(NIGHTSHIFT_CONCAT(status_or_, __LINE__), target, expression)
#define ASSIGN_OR_RETURN_INNER(temporary, target, expression) \
  auto temporary = (expression);                              \
  if (!temporary.ok()) {                                      \
    return std::move(temporary).status();                     \
  }                                                           \
  target = std::move(temporary).value()
