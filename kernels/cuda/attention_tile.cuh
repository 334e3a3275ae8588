// A slab of a key tile in shared memory: 64 dimensions of 64 keys or values as f32, whatever the
// pages hold.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/device_math.cuh"
#include "kernels/cuda/page_codes.cuh"

namespace nightshift::cuda {

inline constexpr int kTile = static_cast<int>(kTileKeys);
inline constexpr int kPage = static_cast<int>(kPagePositions);
inline constexpr int kSlabWidth = 64;
// Rows in shared memory are 16 bytes more apart, so that neighbours lie in other banks.
inline constexpr int kPadding = 4;
inline constexpr int kSlabStride = kSlabWidth + kPadding;

// Where a kv head's part of a tile's pages is, in keys or in values.
struct TilePages {
  std::byte* planes[2];  // of the two pages; null where no query of the block sees a key
  int64_t head;
};

// rows[key][d] of a slab from floats; zeros behind the head's width.
template <int kThreads>
__device__ void LoadFloatSlab(const DevicePageLayout& layout, const TilePages& pages, int slab,
                              float* rows) {
  const int width = static_cast<int>(layout.head_width);
  const int first = slab * kSlabWidth;
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kSlabWidth / 4; i += kThreads) {
    const int key = i / (kSlabWidth / 4);
    const int d = i % (kSlabWidth / 4) * 4;
    const std::byte* plane = pages.planes[key / kPage];
    if (plane == nullptr || first + d >= width) {
      *reinterpret_cast<float4*>(rows + key * kSlabStride + d) = {0.0F, 0.0F, 0.0F, 0.0F};
      continue;
    }
    const int64_t element = (pages.head * kPage + key % kPage) * width + first + d;
    float values[4] = {};
    if (width % 4 == 0) {
      if (layout.dtype == DType::kF32) {
        const float4 four =
            *reinterpret_cast<const float4*>(reinterpret_cast<const float*>(plane) + element);
        *reinterpret_cast<float4*>(rows + key * kSlabStride + d) = four;
        continue;
      }
      const uint2 four =
          *reinterpret_cast<const uint2*>(reinterpret_cast<const uint16_t*>(plane) + element);
      values[0] = __uint_as_float(four.x << 16);
      values[1] = __uint_as_float(four.x & 0xffff0000U);
      values[2] = __uint_as_float(four.y << 16);
      values[3] = __uint_as_float(four.y & 0xffff0000U);
    } else {
      for (int j = 0; j < 4 && first + d + j < width; ++j) {
        values[j] = layout.dtype == DType::kF32
                        ? reinterpret_cast<const float*>(plane)[element + j]
                        : BF16ToFloat(reinterpret_cast<const uint16_t*>(plane)[element + j]);
      }
    }
    *reinterpret_cast<float4*>(rows + key * kSlabStride + d) = {values[0], values[1], values[2],
                                                                values[3]};
  }
}

// The same of codes of keys. A slab is a group.
template <int kThreads>
__device__ void LoadKeyCodes(const DevicePageLayout& layout, const TilePages& pages, int slab,
                             float* rows) {
  const int first = slab * kSlabWidth;
  const int width = min(kSlabWidth, static_cast<int>(layout.head_width) - first);
  const bool is_4_bits = layout.dtype == DType::kU4G64;
  const int step = is_4_bits ? 8 : 2;  // dimensions of a word
  for (int i = static_cast<int>(threadIdx.x); i < kTile * kSlabWidth / step; i += kThreads) {
    const int key = i % kTile;
    const int d = i / kTile * step;
    std::byte* plane = pages.planes[key / kPage];
    if (plane == nullptr || d >= width) {
      for (int j = 0; j < step; ++j) {
        rows[key * kSlabStride + d + j] = 0.0F;
      }
      continue;
    }
    const int slot = key % kPage;
    const uint16_t* numbers = GroupNumbers(layout, plane, pages.head, slab) + slot;
    const float scale = HalfToFloat(numbers[0]);
    const float minimum = HalfToFloat(numbers[kPage]);
    const std::byte* codes = plane + pages.head * layout.head_code_bytes;
    const int word = (first + d) / step * kPage + slot;
    const uint32_t bits = is_4_bits ? reinterpret_cast<const uint32_t*>(codes)[word]
                                    : reinterpret_cast<const uint16_t*>(codes)[word];
    for (int j = 0; j < step; ++j) {
      const uint32_t code = is_4_bits ? bits >> CodeShift(j) & 15U : bits >> (8 * j) & 255U;
      const float value = static_cast<float>(code) * scale + minimum;
      rows[key * kSlabStride + d + j] = d + j < width ? value : 0.0F;
    }
  }
}

// The same of codes of values: a word is of several positions in a dimension.
template <int kThreads>
__device__ void LoadValueCodes(const DevicePageLayout& layout, const TilePages& pages, int slab,
                               float* rows) {
  const int first = slab * kSlabWidth;
  const int width = min(kSlabWidth, static_cast<int>(layout.head_width) - first);
  const bool is_4_bits = layout.dtype == DType::kU4G64;
  const int step = is_4_bits ? 8 : 2;  // positions of a word
  for (int i = static_cast<int>(threadIdx.x); i < kTile / step * kSlabWidth; i += kThreads) {
    const int d = i % kSlabWidth;
    const int key = i / kSlabWidth * step;
    std::byte* plane = pages.planes[key / kPage];
    if (plane == nullptr || d >= width) {
      for (int j = 0; j < step; ++j) {
        rows[(key + j) * kSlabStride + d] = 0.0F;
      }
      continue;
    }
    const int slot = key % kPage;
    const uint16_t* numbers = GroupNumbers(layout, plane, pages.head, slab) + slot;
    const std::byte* codes = plane + pages.head * layout.head_code_bytes;
    const int64_t word = slot / step * layout.padded_width + first + d;
    const uint32_t bits = is_4_bits ? reinterpret_cast<const uint32_t*>(codes)[word]
                                    : reinterpret_cast<const uint16_t*>(codes)[word];
    for (int j = 0; j < step; ++j) {
      const uint32_t code = is_4_bits ? bits >> CodeShift(j) & 15U : bits >> (8 * j) & 255U;
      rows[(key + j) * kSlabStride + d] =
          static_cast<float>(code) * HalfToFloat(numbers[j]) + HalfToFloat(numbers[kPage + j]);
    }
  }
}

}  // namespace nightshift::cuda
