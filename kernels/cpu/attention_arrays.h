// What an attention task keeps while it walks over its key tiles, and the tiles.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention.h"
#include "kernels/tensor_view.h"

namespace nightshift::cpu {

// Head widths are padded to whole vectors of every target.
inline int64_t PaddedHeadWidth(const AttentionArgs& args) {
  return RoundUp(args.layout.head_width, 16);
}

// Queries of a row that read one kv head.
inline int64_t GroupHeads(const AttentionArgs& args) {
  return args.num_heads / args.layout.kv_heads;
}

// Queries of a task are numbered [kv head][row][head of the group].
inline int64_t HeadQueries(const AttentionTask& task) {
  return task.num_rows * GroupHeads(*task.args);
}

inline int64_t NumQueries(const AttentionTask& task) {
  return task.num_heads * HeadQueries(task);
}

// Where a query's D elements lie in q or out of the task's args.
inline float* QueryRow(const AttentionTask& task, const MatrixView& matrix, int64_t query) {
  const int64_t group = GroupHeads(*task.args);
  const int64_t kv_head = task.first_head + query / HeadQueries(task);
  const int64_t row = query % HeadQueries(task) / group;
  return matrix.row(task.span->first_row + task.first_row + row) +
         (kv_head * group + query % group) * task.args->layout.head_width;
}

// Outputs of a query lie in panels: one of the padded head width, or, with dots and of packed pages
// (whose groups they are), as many of 64 as the width takes.
inline bool HasPanels(const AttentionTask& task) {
  return task.uses_dots || task.args->layout.is_packed();
}

inline int64_t PanelWidth(const AttentionTask& task) {
  return HasPanels(task) ? kPanelOutputs : PaddedHeadWidth(*task.args);
}

inline int64_t NumPanels(const AttentionTask& task) {
  return HasPanels(task) ? RoundUp(task.args->layout.head_width, kPanelOutputs) / kPanelOutputs : 1;
}

// The first key that a query at `position` sees.
inline int64_t FirstVisibleKey(const AttentionArgs& args, int64_t position) {
  return args.window == 0 ? 0 : std::max<int64_t>(0, position + 1 - args.window);
}

// The first key of the first tile that the task's rows see.
inline int64_t FirstTileKey(const AttentionTask& task) {
  return FirstVisibleKey(*task.args, task.span->first_position + task.first_row) / kTileKeys *
         kTileKeys;
}

// Keys of all tiles that they see.
inline int64_t TileKeysInAll(const AttentionTask& task) {
  const int64_t num_keys = task.span->first_position + task.first_row + task.num_rows;
  return RoundUp(num_keys - FirstTileKey(task), kTileKeys);
}

// The arrays of one task, carved from its scratch. Q queries, W the padded head width, of a panel
// PanelWidth; with dots all inputs are pairs of bf16.
struct TaskArrays {
  explicit TaskArrays(const AttentionTask& task) {
    const int64_t width = NumPanels(task) * PanelWidth(task);
    const int64_t queries = RoundUp(NumQueries(task), 16);
    const int64_t tile_floats = task.in_place ? 0 : width * kTileKeys;
    keys = task.scratch;
    values = keys + tile_floats;
    q = values + tile_floats;
    scores = q + queries * width;
    weights = scores + queries * kTileKeys;
    tile_out = weights + queries * kTileKeys / 2;
    out = tile_out + queries * width;
    max_score = out + queries * width;
    tile_max = max_score + queries;
    sum = tile_max + queries;
    tile_sum = sum + queries;
    all_scores = tile_sum + queries;
    parts = all_scores + AllScoresFloats(task);
    numbers = parts + queries * kTileKeys;
    bases = numbers + NumPanels(task) * 2 * kTileKeys;
    q_sums = bases + queries;
  }
  static int64_t Floats(const AttentionTask& task) {
    const int64_t width = NumPanels(task) * PanelWidth(task);
    const int64_t queries = RoundUp(NumQueries(task), 16);
    const int64_t of_packed = queries * (kTileKeys + 1 + NumPanels(task)) + 2 * width;
    return (task.in_place ? 0 : 2) * width * kTileKeys +
           queries * (3 * width + 3 * kTileKeys / 2 + 4) + AllScoresFloats(task) +
           (task.args->layout.is_packed() ? of_packed : 0);
  }

  static int64_t AllScoresFloats(const AttentionTask& task) {
    return task.is_sparse ? NumQueries(task) * TileKeysInAll(task) : 0;
  }

  float* keys;       // [D][64], transposed; dots: [D/2][64][2]; in place: none
  float* values;     // [64][W], packed [W/64][64][64]; dots: [W/64][32][64][2]; in place: none
  float* q;          // [Q][W]; dots: [W/64][Q][64]; in place: see LoadQueriesInPlace
  float* scores;     // [Q][64], then weights exp(score - tile_max)
  float* weights;    // dots: [Q][64], the same as bf16
  float* tile_out;   // [panels][Q][panel width]
  float* out;        // [panels][Q][panel width]
  float* max_score;  // [Q] of all tiles so far
  float* tile_max;   // [Q]; then the factor of the tile
  float* sum;        // [Q] of weights, of all tiles so far
  float* tile_sum;   // [Q]; then the factor of what is merged so far
  float* all_scores;  // [Q][TileKeysInAll] of sparse rows, else none
  // Of packed pages only; a group of dimensions is a panel.
  float* parts;    // [Q][64]: q . codes of a group; then weight * scale
  float* numbers;  // [panels][2][64]: scales and minimums of a head's keys, then of its values
  float* bases;    // [Q]: sum of weight * minimum of a group
  float* q_sums;   // [panels][Q]: of the queries as they are multiplied
};

// 64 keys, and which of them and of the task's rows take part.
struct KeyTile {
  int64_t first_key = 0;
  int64_t hidden = 0;  // keys [0, hidden) of the tile are seen by no row: their pages may be null
  int64_t count = 0;   // keys from `count` on do not exist
  int64_t first_row = 0;  // rows [first_row, end_row) of the task see keys of the tile
  int64_t end_row = 0;
};

// Keys [first, last) of a tile.
struct KeyRange {
  int64_t first = 0;
  int64_t last = 0;
  bool operator==(const KeyRange&) const = default;
};

// What a row of the task sees of a tile, which is something.
inline KeyRange SeenKeys(const AttentionTask& task, const KeyTile& tile, int64_t row) {
  const int64_t position = task.span->first_position + task.first_row + row;
  return {std::max<int64_t>(0, FirstVisibleKey(*task.args, position) - tile.first_key),
          std::min(kTileKeys, position + 1 - tile.first_key)};
}

// Calls body(tile) for the tiles that the task's rows see, in ascending order.
template <typename Body>
void ForEachTile(const AttentionTask& task, const Body& body) {
  const int64_t window = task.args->window;
  const int64_t first_position = task.span->first_position + task.first_row;
  const int64_t num_keys = first_position + task.num_rows;
  const int64_t first_visible = FirstVisibleKey(*task.args, first_position);
  for (int64_t key = FirstTileKey(task); key < num_keys; key += kTileKeys) {
    // The last position whose window reaches into the tile is its last key's + window - 1.
    const int64_t end_row =
        window == 0 ? task.num_rows : key + kTileKeys - 1 + window - first_position;
    body(KeyTile{.first_key = key,
                 .hidden = std::max<int64_t>(0, first_visible - key),
                 .count = std::min(kTileKeys, num_keys - key),
                 .first_row = std::max<int64_t>(0, key - first_position),
                 .end_row = std::min(task.num_rows, end_row)});
  }
}

// The first row of a kv head of the task in one page: keys, or values. Rows of the next head
// follow.
template <typename T>
const T* HeadRows(const AttentionTask& task, int64_t head, int64_t page, bool is_values) {
  const KvPageLayout& layout = task.args->layout;
  const std::byte* plane =
      task.span->pages[static_cast<size_t>(page)] + (is_values ? layout.plane_bytes() : 0);
  return reinterpret_cast<const T*>(plane) + layout.element(task.first_head + head, 0);
}

// Pages of a tile.
inline constexpr int64_t kTilePages = kTileKeys / kPagePositions;

// The page that follows `page` in the next tile, or itself where there is none.
inline int64_t NextPage(const AttentionTask& task, int64_t page) {
  const int64_t next = page + kTilePages;
  return next < static_cast<int64_t>(task.span->pages.size()) ? next : page;
}

}  // namespace nightshift::cpu
