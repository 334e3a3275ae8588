// GGUF's super-blocks of 256 values, the "K" types, which a pack keeps bit for bit: their sizes and
// what they stand for.
// Source: block_q2_K to block_q6_K of ggml, https://github.com/ggml-org/ggml; pack_format.md,
// section "Super-blocks", has every bit.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/dtype.h"

namespace nightshift {

inline constexpr int64_t kSuperBlockValues = 256;

// Bytes of one block; 0 for types that are no super-blocks.
int64_t SuperBlockBytes(DType dtype);

// Expands one block, SuperBlockBytes(dtype) long, of a super-block type. Products of scales and
// codes are exact in f32; subtracting a minimum (Q2_K, Q4_K, Q5_K) rounds once.
void ExpandSuperBlock(DType dtype, const std::byte* block,
                      std::span<float, kSuperBlockValues> values);

}  // namespace nightshift
