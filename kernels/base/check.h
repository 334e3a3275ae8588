// CHECK: invariants that only our own code can break. Always on, in every build.
#pragma once

#include <sstream>
#include <string>

namespace nightshift {

// Prints `file:line: CHECK(condition) detail` to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              const std::string& detail);

}  // namespace nightshift

#define CHECK(condition)                                                       \
  do {                                                                         \
    if (!(condition)) [[unlikely]] {                                           \
      ::nightshift::CheckFailed(__FILE__, __LINE__, #condition, std::string()); \
    }                                                                          \
  } while (false)

#define CHECK_COMPARE(a, op, b)                                                      \
  do {                                                                               \
    if (!((a)op(b))) [[unlikely]] {                                                  \
      std::ostringstream detail_;                                                    \
      detail_ << "(" << (a) << " against " << (b) << ")";                            \
      ::nightshift::CheckFailed(__FILE__, __LINE__, #a " " #op " " #b, detail_.str()); \
    }                                                                                \
  } while (false)
#define CHECK_EQ(a, b) CHECK_COMPARE(a, ==, b)
#define CHECK_NE(a, b) CHECK_COMPARE(a, !=, b)
#define CHECK_LE(a, b) CHECK_COMPARE(a, <=, b)
#define CHECK_LT(a, b) CHECK_COMPARE(a, <, b)
#define CHECK_GE(a, b) CHECK_COMPARE(a, >=, b)
#define CHECK_GT(a, b) CHECK_COMPARE(a, >, b)
