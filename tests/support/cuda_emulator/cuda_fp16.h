// Stand-in for NVIDIA's cuda_fp16.h: conversions only.
#pragma once

#include "kernels/convert.h"

struct __half {
  unsigned short bits = 0;
};

inline __half __ushort_as_half(unsigned short bits) {
  return {bits};
}
inline unsigned short __half_as_ushort(__half value) {
  return value.bits;
}
inline float __half2float(__half value) {
  return nightshift::F16ToF32(value.bits);
}
inline __half __float2half_rn(float value) {
  return {nightshift::F32ToF16(value)};
}
