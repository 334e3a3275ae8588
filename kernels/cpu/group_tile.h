// Weights of integer groups in the innermost loops of matmul: expanded a block at a time for the
// tiles of matmul_tile.h, or, for a few rows, on their way into the products.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_tile.h"
#include "kernels/group_format.h"

namespace nightshift::cpu {

// Some inputs of one panel.
struct GroupBlock {
  GroupFormat format;
  PanelPlanes planes;
  const std::byte* panel = nullptr;
  int64_t inputs = 0;       // of the panel, without padding
  int64_t first_input = 0;  // a multiple of 64
  int64_t pairs = 0;        // of inputs; the second one of the last may lie behind `inputs`
};

// How codes lie, for loops that are compiled for each kind.
template <int kBitsIn, bool kSignedIn, bool kHasMinimumIn>
struct Codes {
  static constexpr int kBits = kBitsIn;
  static constexpr bool kSigned = kSignedIn;  // of 8 bits: signed bytes; of 4: less 8
  static constexpr bool kHasMinimum = kHasMinimumIn;
  static constexpr int64_t kPairBytes = kBits == 4 ? 1 : 2;  // of an output
};

// Calls use(Codes<...>()) of the format's kind.
template <typename Use>
void WithCodes(const GroupFormat& format, const Use& use) {
  if (format.bits == 4) {
    format.has_minimum ? use(Codes<4, false, true>()) : use(Codes<4, true, false>());
  } else {
    format.has_minimum ? use(Codes<8, false, true>()) : use(Codes<8, true, false>());
  }
}

// A sum takes the same values whatever the number of rows: scale * (code - zero), which is exact,
// plus the minimum, rounded once to f32, and for bf16 once more to that; 0 behind the last input.
struct GroupKernel {
  // Writes a block as the kind's tiles read it: f32 [64/W][K][W] with W the tiles'
  // expanded_outputs, or bf16 [K/2][64][2] for dots.
  void (*expand)(const GroupBlock& block, int64_t width, std::byte* target) = nullptr;
  // Multiplies up to this many rows by the codes as they lie, into [rows][64] sums; weights and
  // next of its arguments are unused. A block expanded for so few rows costs more than they do.
  int64_t most_in_place = 0;
  void (*multiply)(const TileArgs& args, const GroupBlock& block, int64_t rows) = nullptr;
};

// Of a kind of groups.
const GroupKernel& GroupKernelOf(TileKind kind);

}  // namespace nightshift::cpu
