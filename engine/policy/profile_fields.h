// What the members of a hardware profile are called in JSON and in messages, where more than one
// place says it. For hardware_profile and its JSON.
#pragma once

#include <cstddef>

namespace nightshift {

// The names of a curve's points; units last.
struct CurveFields {
  const char* size;
  const char* rate;
};
inline constexpr CurveFields kBytesCurve = {"bytes", "bytes_per_s"};
inline constexpr CurveFields kDepthCurve = {"depth", "bytes_per_s"};
inline constexpr CurveFields kMatmulCurve = {"rows", "flops_per_s"};
inline constexpr CurveFields kPromptAttentionCurve = {"tokens", "flops_per_s"};
inline constexpr CurveFields kDecodeAttentionCurve = {"positions", "bytes_per_s"};

inline constexpr char kSpreadField[] = "spread";
inline constexpr char kRatesField[] = "rates";  // the curve of an entry of a list

inline constexpr size_t kMostProfileEntries = 64;  // points of a curve, entries of a list

}  // namespace nightshift
