// Integer arithmetic on numbers from files: the result, or nothing when it does not fit in 64 bits.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>

namespace nightshift {

inline std::optional<int64_t> CheckedAdd(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) {
    return std::nullopt;
  }
  return sum;
}

// Product of all factors; 1 for none.
inline std::optional<int64_t> CheckedMultiply(std::initializer_list<int64_t> factors) {
  int64_t product = 1;
  for (const int64_t factor : factors) {
    if (__builtin_mul_overflow(product, factor, &product)) {
      return std::nullopt;
    }
  }
  return product;
}

// `value` as a signed number, or nothing above 2^63 - 1.
inline std::optional<int64_t> CheckedSigned(uint64_t value) {
  if (value > static_cast<uint64_t>(INT64_MAX)) {
    return std::nullopt;
  }
  return static_cast<int64_t>(value);
}

// The smallest multiple of `multiple` (> 0) that is not below `value` (>= 0).
inline std::optional<int64_t> CheckedRoundUp(int64_t value, int64_t multiple) {
  const std::optional<int64_t> padded = CheckedAdd(value, multiple - 1);
  if (!padded) {
    return std::nullopt;
  }
  return *padded / multiple * multiple;
}

}  // namespace nightshift
