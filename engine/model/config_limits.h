// Bounds of a model's numbers, checked before anything is computed from them.
#pragma once

#include <cstddef>
#include <cstdint>

namespace nightshift {

// Far above every published model, and low enough that no product of a tensor's dimensions and
// type overflows: 2^31 positions x 2^20 width x 4 bytes is 2^53.
inline constexpr int64_t kMaxVocabulary = 1 << 24;
inline constexpr int64_t kMaxWidth = 1 << 20;
inline constexpr int64_t kMaxHeads = 1 << 14;
inline constexpr int64_t kMaxHeadWidth = 1 << 12;
inline constexpr int64_t kMaxContext = INT32_MAX;
inline constexpr size_t kMaxEosTokens = 64;
inline constexpr double kMaxNumber = 1e30;

}  // namespace nightshift
