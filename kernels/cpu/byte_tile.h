// Matmul of compute type int8: inputs rounded to 8 bits in groups, by the codes of integer groups.
// The products of a group are summed as integers, exactly, and scaled once:
//   sum over groups of scale_x * (scale_w * sum(code_x * code_w) + minimum_w * sum(code_x)).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/group_tile.h"
#include "kernels/cpu/matmul_tile.h"

namespace nightshift::cpu {

// Rounds `count` inputs of a group to codes of -127 to 127, ties to even: of the largest magnitude
// `scale` is a 127th. Zeros behind them, up to `group`. The scale is NaN if an input is not finite,
// and all codes are 0 if it is too small for its inverse.
ByteGroup RoundToBytes(const float* source, int64_t count, int64_t group, std::byte* target);

// `many` tiles read what the group kernel's `expand` wrote: the
// block's codes [K/4][64][4], then f32 [groups][64] scales, then minimums if there are.
const TileKernel& ByteTileKernel();
const GroupKernel& ByteGroupKernel();

// What `expand` writes behind the codes.
void WidenNumbers(const GroupBlock& block, float* target);

// The same by VPDPBUSD (byte_dots.cc), only where HasByteDots(), which asks the processor: keep the
// answer.
bool HasByteDots();
const TileKernel& ByteDotKernel();
const GroupKernel& ByteDotGroupKernel();

}  // namespace nightshift::cpu
