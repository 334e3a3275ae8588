#include "kernels/cpu/matmul.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/bf16_dots.h"
#include "kernels/cpu/byte_tile.h"
#include "kernels/cpu/convert_simd.h"
#include "kernels/cpu/group_tile.h"

namespace nightshift::cpu {
namespace {

// Of one pass over the tiles in place: a block of a panel stays in the second-level cache, with the
// one that follows, until all tiles have read it.
constexpr int64_t kBlockBytes = int64_t{128} << 10;
// With few rows the weights come from memory: a block of 8 or 16 KiB lets the second tile, or the
// second part of the panel's width, find them in the first-level cache. In twice as much time
// without a read memory falls idle (8 rows of dots: 30 % slower).
constexpr int64_t kSmallBlockInputs = 64;

int64_t PaddedInputs(int64_t inputs) {
  return RoundUp(inputs, kSegmentInputs);
}

// Of the 64 outputs of one input; of groups the codes.
int64_t InputBytes(const BlockArgs& args) {
  if (IsOfGroups(args.kind)) return kPanelOutputs * args.format.bits / 8;
  return kPanelOutputs * (args.kind == TileKind::kF32 ? 4 : 2);
}

// Where input k (of a whole segment) of packed rows lies.
class PackedBlock {
 public:
  PackedBlock(const RowTiles& tiles, int64_t inputs, int64_t k) {
    const int64_t block = k / tiles.block_inputs * tiles.block_inputs;
    first_ = block * tiles.rows;
    width_ = std::min(tiles.block_inputs, PaddedInputs(inputs) - block);
    offset_ = k - block;
  }
  // Of the first row of a tile of `rows` rows.
  int64_t Element(int64_t first_row, int64_t rows) const {
    return first_ + first_row * width_ + offset_ * rows;
  }

 private:
  int64_t first_;
  int64_t width_;
  int64_t offset_;
};

int64_t GroupInputs(TileKind kind) {
  return kind == TileKind::kBytes32 || kind == TileKind::kByteDots32 ? 32 : 64;
}

// Packed bytes are followed by their groups: [K/group][rows].
int64_t FirstGroupAt(int64_t rows, int64_t inputs) {
  return rows * PaddedInputs(inputs);
}

// A segment of one row; zeros behind `count`.
void PackSegment(const float* source, int64_t count, const PackArgs& args, std::byte* target) {
  if (args.kind == TileKind::kBF16Dots || args.kind == TileKind::kGroupsDots) {
    RoundForDots(source, count, target);
    return;
  }
  auto* floats = reinterpret_cast<float*>(target);
  if (args.rounds) {
    RoundThroughBF16(source, count, floats);
  } else {
    std::memcpy(floats, source, static_cast<size_t>(count) * sizeof(float));
  }
  std::fill(floats + count, floats + kSegmentInputs, 0.0F);
}

// A block of inputs of one panel.
struct PanelBlock {
  int64_t panel = 0;
  int64_t first_input = 0;
  int64_t inputs = 0;
  const std::byte* next = nullptr;  // the block that follows, or none
};

const std::byte* BlockWeights(const BlockArgs& args, int64_t panel, int64_t first_input) {
  return args.panels + panel * args.panel_bytes + first_input * InputBytes(args);
}

GroupBlock GroupsOf(const BlockArgs& args, const PanelBlock& block) {
  return {.format = args.format,
          .planes = args.planes,
          .panel = args.panels + block.panel * args.panel_bytes,
          .inputs = args.inputs,
          .first_input = block.first_input,
          .pairs = (block.inputs + 1) / 2};
}

// Expands a block of weights where tiles do not read it in place. False where they do.
bool Expand(const BlockArgs& args, const PanelBlock& block, float* expanded) {
  const TileKernel& kernel = TileKernelOf(args.kind);
  if (IsOfGroups(args.kind)) {
    GroupKernelOf(args.kind).expand(GroupsOf(args, block), kernel.expanded_outputs,
                                    reinterpret_cast<std::byte*>(expanded));
    return true;
  }
  if (args.tiles.are_few || kernel.expand == nullptr) return false;
  kernel.expand(BlockWeights(args, block.panel, block.first_input), (block.inputs + 1) / 2,
                expanded);
  return true;
}

// Writes the outputs of a tile of a panel from its sums.
void StoreTile(const BlockArgs& args, int64_t panel, int64_t tile, const float* sums) {
  const int64_t first_output = panel * kPanelOutputs;
  const int64_t outputs = std::min(kPanelOutputs, args.out.columns - first_output);
  const int64_t row = args.tiles.FirstRow(tile);
  const int64_t rows = args.tiles.FirstRow(tile + 1) - row;
  StoreSums({.sums = sums,
             .bias = args.bias == nullptr ? nullptr : args.bias + first_output,
             .accumulate = args.accumulate,
             .out = args.out.Rows(row, rows).Columns(first_output, outputs)});
}

// Adds the products of a block to the sums; behind the last one, writes the outputs.
void MultiplyInputs(const BlockArgs& args, const PanelBlock& block) {
  const TileKernel& kernel = TileKernelOf(args.kind);
  const RowTiles& tiles = args.tiles;
  const int64_t pairs = (block.inputs + 1) / 2;
  const int64_t row_bytes = InputBytes(args);
  const std::byte* weights = BlockWeights(args, block.panel, block.first_input);
  float* expanded = args.scratch + kMaxBlockSums;
  const bool expands = Expand(args, block, expanded);
  const bool starts = block.first_input == 0;
  const bool ends = block.first_input + block.inputs == args.inputs;
  const int64_t first_row = tiles.FirstRow(args.first_tile);
  const int64_t block_rows = tiles.FirstRow(args.last_tile) - first_row;
  float* panel_sums = args.scratch + block.panel * block_rows * kPanelOutputs;
  const int64_t width = expands ? kernel.expanded_outputs : kPanelOutputs;
  int64_t to_fetch = block.next == nullptr ? 0 : block.inputs * row_bytes;
  // Sums that are written at once need no place of their own.
  const bool passes = starts && ends && width == kPanelOutputs;
  const PackedBlock packed(tiles, args.inputs, block.first_input);
  for (int64_t n = 0; n < kPanelOutputs; n += width) {
    int64_t end_row = first_row;
    for (int64_t tile = args.first_tile; tile < args.last_tile; ++tile) {
      const int64_t row = end_row;
      end_row = tiles.FirstRow(tile + 1);
      const int64_t rows = end_row - row;
      float* sums = passes ? args.scratch : panel_sums + (row - first_row) * kPanelOutputs;
      TileArgs tile_args = {.x = args.packed + packed.Element(row, rows) * kernel.input_bytes,
                            .weights = weights,
                            .pairs = pairs,
                            .starts = starts,
                            .sums = sums + n,
                            // What is fetched already costs little.
                            .next = weights};
      if (IsOfBytes(args.kind)) {
        const auto* groups = reinterpret_cast<const ByteGroup*>(
            args.packed + FirstGroupAt(tiles.rows, args.inputs));
        tile_args.format = &args.format;
        tile_args.groups = groups + block.first_input / args.format.group * tiles.rows + row;
        tile_args.group_stride = tiles.rows;
      }
      if (to_fetch > 0) {
        tile_args.next = block.next + block.inputs * row_bytes - to_fetch;
        to_fetch -= pairs * 64;
      }
      if (expands) {
        tile_args.weights = reinterpret_cast<const std::byte*>(expanded + n * 2 * pairs);
      }
      (tiles.are_few ? kernel.few : kernel.many)[rows](tile_args);
      if (ends && n + width == kPanelOutputs) StoreTile(args, block.panel, tile, sums);
    }
  }
}

// One tile of rows by a panel's codes, which are read once, as a plain stream.
void MultiplyByCodes(const BlockArgs& args, int64_t panel) {
  const RowTiles& tiles = args.tiles;
  for (int64_t first = 0; first < args.inputs; first += tiles.block_inputs) {
    const PanelBlock block = {.panel = panel,
                              .first_input = first,
                              .inputs = std::min(tiles.block_inputs, args.inputs - first)};
    const PackedBlock packed(tiles, args.inputs, first);
    GroupKernelOf(args.kind).multiply(
        {.x = args.packed + packed.Element(0, tiles.rows) * TileKernelOf(args.kind).input_bytes,
         .starts = first == 0,
         .sums = args.scratch},
        GroupsOf(args, block), tiles.rows);
  }
  StoreTile(args, panel, 0, args.scratch);
}

}  // namespace

RowTiles CutIntoTiles(TileKind kind, int64_t rows, int64_t inputs) {
  const TileKernel& kernel = TileKernelOf(kind);
  const bool are_few = rows <= kernel.most_few;
  // An odd input's neighbour must be 0, which only an expanded block has.
  const bool take_codes =
      IsOfGroups(kind) && rows <= GroupKernelOf(kind).most_in_place && inputs % 2 == 0;
  const int64_t tile_rows = take_codes ? std::max<int64_t>(1, rows)
                            : are_few  ? kernel.few_rows
                                       : kMaxTileRows;
  int64_t block_inputs = kExpandedInputs;
  if (IsOfGroups(kind)) {
    block_inputs = kind == TileKind::kGroups || kind == TileKind::kGroupsRounded
                       ? kExpandedInputs
                       : kExpandedDotInputs;
  } else if (are_few || kernel.expand == nullptr) {
    // As many equal blocks as come nearest to the size.
    const int64_t panel_bytes = inputs * kPanelOutputs * (kind == TileKind::kF32 ? 4 : 2);
    const int64_t blocks = std::max<int64_t>(1, (panel_bytes + kBlockBytes / 2) / kBlockBytes);
    block_inputs = RoundUp((inputs + blocks - 1) / blocks, kSegmentInputs);
  }
  return {.rows = rows,
          .count = (rows + tile_rows - 1) / tile_rows,
          .are_few = are_few,
          .take_codes = take_codes,
          .block_inputs = block_inputs};
}

int64_t PackedBytes(TileKind kind, int64_t rows, int64_t inputs) {
  const int64_t groups =
      IsOfBytes(kind) ? rows * PaddedInputs(inputs) / GroupInputs(kind) : 0;
  return rows * PaddedInputs(inputs) * TileKernelOf(kind).input_bytes +
         groups * static_cast<int64_t>(sizeof(ByteGroup));
}

// One segment of the rows of a tile, and its groups.
void PackBytes(const PackArgs& args, const RowTiles& tiles, int64_t row, int64_t k,
               std::byte* target) {
  const int64_t group = GroupInputs(args.kind);
  auto* groups =
      reinterpret_cast<ByteGroup*>(args.packed + FirstGroupAt(tiles.rows, args.x.columns));
  for (int64_t first = k; first < k + kSegmentInputs; first += group, target += group) {
    const int64_t count = std::clamp<int64_t>(args.x.columns - first, 0, group);
    groups[first / group * tiles.rows + row] =
        RoundToBytes(args.x.row(row) + first, count, group, target);
  }
}

void PackTile(const PackArgs& args, const RowTiles& tiles, int64_t tile) {
  const int64_t first_row = tiles.FirstRow(tile);
  const int64_t rows = tiles.FirstRow(tile + 1) - first_row;
  const int64_t inputs = args.x.columns;
  const int64_t input_bytes = TileKernelOf(args.kind).input_bytes;
  for (int64_t k = 0; k < inputs; k += kSegmentInputs) {
    const int64_t count = std::min(kSegmentInputs, inputs - k);
    std::byte* target =
        args.packed + PackedBlock(tiles, inputs, k).Element(first_row, rows) * input_bytes;
    for (int64_t row = 0; row < rows; ++row, target += kSegmentInputs * input_bytes) {
      if (IsOfBytes(args.kind)) {
        PackBytes(args, tiles, first_row + row, k, target);
      } else {
        PackSegment(args.x.row(first_row + row) + k, count, args, target);
      }
    }
  }
}

void MultiplyBlock(const BlockArgs& args) {
  const RowTiles& tiles = args.tiles;
  if (tiles.take_codes) {
    for (int64_t panel = 0; panel < args.num_panels; ++panel) {
      MultiplyByCodes(args, panel);
    }
    return;
  }
  const bool rereads =
      tiles.count > 1 || TileKernelOf(args.kind).parts_few || IsOfGroups(args.kind);
  const int64_t block_inputs = tiles.are_few && rereads ? kSmallBlockInputs : tiles.block_inputs;
  for (int64_t first = 0; first < args.inputs; first += block_inputs) {
    const int64_t inputs = std::min(block_inputs, args.inputs - first);
    for (int64_t panel = 0; panel < args.num_panels; ++panel) {
      PanelBlock block = {.panel = panel, .first_input = first, .inputs = inputs};
      if (tiles.are_few) {
        // A plain stream, which the caches see coming.
      } else if (panel + 1 < args.num_panels) {
        block.next = BlockWeights(args, panel + 1, first);
      } else if (first + inputs < args.inputs) {
        block.next = BlockWeights(args, 0, first + inputs);
      }
      MultiplyInputs(args, block);
    }
  }
}

}  // namespace nightshift::cpu
