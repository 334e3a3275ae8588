// Causal attention over pages on the device (kernels/ops.h).
//
// A query's bits depend on its own position and the pages alone: key tiles of 64 from position 0
// are each reduced by themselves (scores over d ascending, the tile's maximum, four sums of 16
// weights, values over keys ascending) and merged in ascending order. How many queries a block
// takes, and whether the tiles of a query are one block's or several blocks' that leave them for a
// merge behind them, changes who computes what.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/kv_store.h"
#include "kernels/cuda/launch.h"
#include "kernels/ops.h"

namespace nightshift::cuda {

// Some queries of one request that a block takes for each kv head. Query i of a request is its row
// i / group, of the row's heads of a kv head the (i % group)-th.
struct QueryBlock {
  int64_t first_row = 0;       // of the request, in q and out
  int64_t first_position = 0;  // of that row
  int32_t first_query = 0;
  int32_t num_queries = 0;
  int32_t first_page = 0;  // of the request, in the table of pages
  int32_t first_tile = 0;
  int32_t end_tile = 0;
  int32_t parts = 1;          // blocks that share its tiles
  int64_t first_partial = 0;  // where tiles are left, if there are several
};

// All blocks of a call that take as many queries.
struct AttentionPlan {
  int queries = 0;  // a block has room for: 1, 8, or 32 (16 of heads wider than 128)
  std::vector<QueryBlock> blocks;
  int32_t max_parts = 1;
  int64_t num_partials = 0;  // tiles of queries of all kv heads that are left
};

// What decides how a call is cut.
struct AttentionLimits {
  int64_t wanted_blocks = 1;  // that keep the device busy
  int64_t max_partials = 0;   // room for tiles that are left
};

// Cuts a call into plans; requests with few queries and with many have one each. `first_pages` has
// each span's first page in the table.
std::vector<AttentionPlan> PlanAttention(const AttentionArgs& args,
                                         std::span<const int32_t> first_pages,
                                         const AttentionLimits& limits);

// Floats that a tile of a query takes that is left.
int64_t PartialFloats(int64_t head_width);

struct DeviceAttentionArgs {
  MatrixView q;
  MatrixView out;
  DevicePageLayout layout;
  int64_t num_heads = 0;
  float scale = 1.0F;
  float softcap = 0.0F;
  int64_t window = 0;
  // On the device.
  const QueryBlock* blocks = nullptr;
  std::byte* const* pages = nullptr;
  float* partials = nullptr;  // [num_partials] of PartialFloats
};

// Asynchronous on the launcher's stream. `args.blocks` are the plan's.
void LaunchAttention(Launcher& launcher, const AttentionPlan& plan,
                     const DeviceAttentionArgs& args);

}  // namespace nightshift::cuda
