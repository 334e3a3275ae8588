#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/convert_simd.h"

namespace nightshift::cpu {
namespace {

// Inputs of one pass over the tiles in place: a block of the panel (128 KiB of bf16) stays in the
// second-level cache until all tiles have read it.
constexpr int64_t kBlockInputs = 1024;
// With few tiles the weights come from memory: a block of 8 or 16 KiB lets the second tile, or the
// second part of the panel's width, find them in the first-level cache.
constexpr int64_t kSmallBlockInputs = 64;

int64_t PaddedInputs(int64_t inputs) {
  return RoundUp(inputs, kSegmentInputs);
}

// Where input k (of a whole segment) of a tile's first row lies.
int64_t PackedElement(const RowTiles& tiles, int64_t first_row, int64_t rows, int64_t inputs,
                      int64_t k) {
  const int64_t block = k / tiles.block_inputs * tiles.block_inputs;
  const int64_t block_width = std::min(tiles.block_inputs, PaddedInputs(inputs) - block);
  return block * tiles.rows + first_row * block_width + (k - block) * rows;
}

void PackSegment(const float* source, int64_t count, const PackArgs& args, std::byte* target) {
  auto* floats = reinterpret_cast<float*>(target);
  if (args.kind == TileKind::kBF16Dots) {
    RoundToBF16(source, count, target);
  } else if (args.rounds) {
    RoundThroughBF16(source, count, floats);
  } else {
    std::memcpy(floats, source, static_cast<size_t>(count) * sizeof(float));
  }
}

float* PanelSums(const BlockArgs& args, int64_t panel) {
  return args.scratch + panel * kMaxBlockRows * kPanelOutputs;
}

// Adds the products of `pairs` pairs of inputs from `first_input` to the sums of one panel.
void MultiplyInputs(const BlockArgs& args, int64_t panel, int64_t first_input, int64_t pairs) {
  const TileKernel& kernel = TileKernelOf(args.kind);
  const RowTiles& tiles = args.tiles;
  const int64_t weight_bytes = args.kind == TileKind::kF32 ? 4 : 2;
  const std::byte* weights =
      args.panels + panel * args.panel_bytes + first_input * kPanelOutputs * weight_bytes;
  float* expanded = PanelSums(args, kMaxBlockPanels);
  if (tiles.expands) kernel.expand(weights, pairs, expanded);
  const int64_t first_row = tiles.FirstRow(args.first_tile);
  const int64_t width = tiles.expands ? kernel.expanded_outputs : kPanelOutputs;
  for (int64_t n = 0; n < kPanelOutputs; n += width) {
    for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
      const int64_t row = tiles.FirstRow(tile);
      const int64_t rows = tiles.FirstRow(tile + 1) - row;
      const int64_t x = PackedElement(tiles, row, rows, args.inputs, first_input);
      TileArgs tile_args = {.x = args.packed + x * kernel.input_bytes,
                            .weights = weights,
                            .pairs = pairs,
                            .starts = first_input == 0,
                            .sums = PanelSums(args, panel) + (row - first_row) * kPanelOutputs + n};
      if (tiles.expands) {
        tile_args.weights = reinterpret_cast<const std::byte*>(expanded + n * 2 * pairs);
        kernel.expanded[rows](tile_args);
      } else {
        kernel.in_place[rows](tile_args);
      }
    }
  }
}

}  // namespace

RowTiles CutIntoTiles(TileKind kind, int64_t rows) {
  const TileKernel& kernel = TileKernelOf(kind);
  const bool expands = kernel.expand != nullptr && rows > kFewTiles * kernel.rows_in_place;
  const int64_t tile_rows = expands ? kMaxTileRows : kernel.rows_in_place;
  return {.rows = rows,
          .count = (rows + tile_rows - 1) / tile_rows,
          .expands = expands,
          .block_inputs = expands ? kExpandedInputs : kBlockInputs};
}

int64_t PackedBytes(TileKind kind, int64_t rows, int64_t inputs) {
  return rows * PaddedInputs(inputs) * TileKernelOf(kind).input_bytes;
}

void PackTile(const PackArgs& args, const RowTiles& tiles, int64_t tile) {
  const int64_t first_row = tiles.FirstRow(tile);
  const int64_t rows = tiles.FirstRow(tile + 1) - first_row;
  const int64_t inputs = args.x.columns;
  const int64_t input_bytes = TileKernelOf(args.kind).input_bytes;
  for (int64_t k = 0; k < inputs; k += kSegmentInputs) {
    const int64_t count = std::min(kSegmentInputs, inputs - k);
    std::byte* target =
        args.packed + PackedElement(tiles, first_row, rows, inputs, k) * input_bytes;
    for (int64_t row = 0; row < rows; ++row, target += kSegmentInputs * input_bytes) {
      PackSegment(args.x.row(first_row + row) + k, count, args, target);
      std::memset(target + count * input_bytes, 0,
                  static_cast<size_t>((kSegmentInputs - count) * input_bytes));
    }
  }
}

void MultiplyBlock(const BlockArgs& args) {
  const RowTiles& tiles = args.tiles;
  const int64_t first_row = tiles.FirstRow(args.first_tile);
  const int64_t rows = tiles.FirstRow(args.last_tile) - first_row;
  const int64_t block_inputs = tiles.count <= kFewTiles ? kSmallBlockInputs : tiles.block_inputs;
  for (int64_t first = 0; first < args.inputs; first += block_inputs) {
    const int64_t inputs = std::min(block_inputs, args.inputs - first);
    for (int64_t panel = 0; panel < args.num_panels; ++panel) {
      MultiplyInputs(args, panel, first, (inputs + 1) / 2);
    }
  }
  for (int64_t panel = 0; panel < args.num_panels; ++panel) {
    const int64_t first_output = panel * kPanelOutputs;
    const int64_t outputs = std::min(kPanelOutputs, args.out.columns - first_output);
    StoreSums({.sums = PanelSums(args, panel),
               .bias = args.bias == nullptr ? nullptr : args.bias + first_output,
               .accumulate = args.accumulate,
               .out = args.out.Rows(first_row, rows).Columns(first_output, outputs)});
  }
}

}  // namespace nightshift::cpu
