// Matmul of packed rows with panels of 64 outputs: cache blocks around the tiles of matmul_tile.h.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/matmul_tile.h"
#include "kernels/group_format.h"
#include "kernels/tensor_view.h"

namespace nightshift::cpu {

// How `rows` rows are cut into tiles: as few as there can be, equal but for one row.
struct RowTiles {
  int64_t rows = 0;
  int64_t count = 0;
  bool are_few = false;      // weights are read once, from memory
  bool take_codes = false;   // integer groups are multiplied as they lie, not expanded before
  int64_t block_inputs = 0;  // rows are packed in blocks of inputs: [K/block][rows][block]

  int64_t FirstRow(int64_t tile) const { return tile * rows / count; }
};

RowTiles CutIntoTiles(TileKind kind, int64_t rows, int64_t inputs);

// Bytes of `rows` packed rows of `inputs` elements.
int64_t PackedBytes(TileKind kind, int64_t rows, int64_t inputs);

// Packs the rows of one tile of x [T, K] to their place in `packed` (of PackedBytes, 64-byte
// aligned). `rounds`: to bf16, also where inputs are kept as f32.
struct PackArgs {
  MatrixView x;
  TileKind kind = TileKind::kF32;
  bool rounds = false;
  std::byte* packed = nullptr;
};

void PackTile(const PackArgs& args, const RowTiles& tiles, int64_t tile);

// Rows and panels of one call at most.
inline constexpr int64_t kMaxBlockRows = 270;
inline constexpr int64_t kMaxBlockPanels = 4;
// Floats of the sums of a call.
inline constexpr int64_t kMaxBlockSums = kMaxBlockPanels * kMaxBlockRows * kPanelOutputs;
// Inputs of a block that is expanded to f32: with the sums (270 KiB) and the rows' inputs (135 KiB)
// it stays in a second-level cache of 512 KiB, a part of its width (AVX2: 8 KiB) in the first.
inline constexpr int64_t kExpandedInputs = 128;
// To bf16: the same bytes.
inline constexpr int64_t kExpandedDotInputs = 2 * kExpandedInputs;
// Floats of a worker's scratch: the sums of a call and an expanded block.
inline constexpr int64_t kBlockScratch = kMaxBlockSums + kExpandedInputs * kPanelOutputs;

// out[t, n] (+)= sum_k x[t, k] * weight[n, k] + bias[n] for the rows of some tiles and the outputs
// of some panels. First the sum of products, then the bias is added, then the old output.
struct BlockArgs {
  TileKind kind = TileKind::kF32;
  const std::byte* packed = nullptr;  // all rows of the matmul
  int64_t inputs = 0;
  RowTiles tiles;  // of all rows
  int64_t first_tile = 0;
  int64_t last_tile = 0;  // behind the last one
  // [..][K/2][64][2] of the kind's weights, or panels of integer groups
  const std::byte* panels = nullptr;
  // Of kinds of groups.
  GroupFormat format;
  PanelPlanes planes;
  int64_t num_panels = 0;
  int64_t panel_bytes = 0;
  const float* bias = nullptr;  // of the first panel's first output, or none
  MatrixView out;               // all rows; the columns of the panels
  bool accumulate = false;
  float* scratch = nullptr;  // of kBlockScratch floats, 64-byte aligned
};

void MultiplyBlock(const BlockArgs& args);

}  // namespace nightshift::cpu
