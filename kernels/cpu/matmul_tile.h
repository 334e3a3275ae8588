// The innermost loops of matmul: a tile of a few rows by the 64 outputs of a panel, by run-time
// dispatch.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/group_format.h"
#include "kernels/tensor_view.h"

namespace nightshift::cpu {

// What is multiplied: the type of the weights, and for bf16 weights how.
enum class TileKind : uint8_t {
  kF32,       // f32 inputs
  kF16,       // f32 inputs, weights widened
  kBF16,      // f32 inputs, weights widened
  kBF16Dots,  // bf16 inputs, two products a lane and instruction (VDPBF16PS)
  // Integer groups, expanded: to f32, for f32 inputs; to bf16, kept as f32; to bf16 for dots.
  kGroups,
  kGroupsRounded,
  kGroupsDots,
  // The same by inputs of 8 bits in groups of 32 or 64, as the weights' are: byte_tile.h.
  kBytes32,
  kBytes64,
  kByteDots32,  // by VPDPBUSD
  kByteDots64,
};

constexpr bool IsOfGroups(TileKind kind) {
  return kind >= TileKind::kGroups;
}

constexpr bool IsOfBytes(TileKind kind) {
  return kind >= TileKind::kBytes32;
}

constexpr bool IsOfByteDots(TileKind kind) {
  return kind >= TileKind::kByteDots32;
}

// Inputs of a row that share a scale: value = scale * code.
struct ByteGroup {
  float scale = 0.0F;
  int32_t sum = 0;  // of the codes
};

// Rows are packed in segments of this many inputs: [K/64][rows of the tile][64], the last segment
// padded with zeros, so that a tile's rows lie at fixed distances and in few cache lines.
inline constexpr int64_t kSegmentInputs = 64;
inline constexpr int64_t kMaxTileRows = 6;

// Adds the products of a block of inputs to a tile's sums.
struct TileArgs {
  const std::byte* x = nullptr;        // packed rows, at the block's first input
  const std::byte* weights = nullptr;  // of the block: in place [K/2][64][2], or expanded
  int64_t pairs = 0;                   // pairs of inputs in the block
  bool starts = false;                 // sums begin at 0 and not at what is in `sums`
  float* sums = nullptr;               // [rows][64], 64-byte aligned
  // Tiles of many: fetched into the second-level cache meanwhile, a line of 64 bytes a pair.
  const std::byte* next = nullptr;
  // Of kinds of bytes: the weights' groups; those of the rows, from the tile's first row at the
  // block's first group, and their distance from one group to the next.
  const GroupFormat* format = nullptr;
  const ByteGroup* groups = nullptr;
  int64_t group_stride = 0;
};

using MultiplyTile = void (*)(const TileArgs&);

// The tiles of one kind, by rows ([0] is unused). Whatever the number of rows, in place or
// expanded, a sum takes its inputs in ascending order by the same instruction, and a block
// continues where the last one ended: the bits of an output do not depend on rows or blocks.
struct TileKernel {
  int64_t input_bytes = 0;  // of an element of packed x
  // For few rows, up to `most_few`: the first tile reads weights in place from memory, as a plain
  // stream, which is as fast as memory but waits while other tiles multiply.
  int64_t most_few = 0;
  int64_t few_rows = kMaxTileRows;  // of a tile at most
  bool parts_few = false;           // a tile takes the panel's width in parts
  MultiplyTile few[kMaxTileRows + 1] = {};
  // For many rows: the first tiles of a block fetch the next one, at half the rate.
  MultiplyTile many[kMaxTileRows + 1] = {};
  // Writes a block's weights as f32 [64/W][K][W] for `many`, which costs as much as two rows and
  // spares every tile the widening and the strides. W = `expanded_outputs`, what a tile of
  // kMaxTileRows multiplies at one time. None for kBF16Dots, whose weights stay in place, and for
  // groups, which GroupKernelOf expands, to the same form or to what dots read in place.
  void (*expand)(const std::byte* weights, int64_t pairs, float* target) = nullptr;
  int64_t expanded_outputs = kPanelOutputs;
};

const TileKernel& TileKernelOf(TileKind kind);

// out[t, n] (+)= sums[t][n] + bias[n] for the first out.columns of 64 outputs.
struct StoreSumsArgs {
  const float* sums = nullptr;
  const float* bias = nullptr;  // or none
  bool accumulate = false;
  MatrixView out;
};

void StoreSums(const StoreSumsArgs& args);

}  // namespace nightshift::cpu
