// Kernels of the instruction VDPBF16PS, which Highway has no target for: a lane of f32 takes the
// products of two bf16 pairs. They join the targets that Highway chooses from: used where AVX-512
// with VNNI ("AVX3_DL") may be used and the machine has the instruction.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/group_tile.h"
#include "kernels/cpu/matmul_tile.h"

namespace nightshift::cpu {

// True if the chosen target has bf16 dots. Asks the processor: keep the answer.
bool HasBF16Dots();

// target = 64 inputs of dots, bf16: the first `count` from `source`, zeros behind them. Those so
// small that they are no normal numbers become 0, as which dots take them anyway. Only where
// HasBF16Dots().
void RoundForDots(const float* source, int64_t count, std::byte* target);

// Of the kinds kBF16Dots and kGroupsDots; only where HasBF16Dots().
const TileKernel& BF16DotKernel();

// Of kind kGroupsDots (bf16_group_dots.cc); only where HasBF16Dots().
const GroupKernel& GroupDotKernel();

}  // namespace nightshift::cpu
