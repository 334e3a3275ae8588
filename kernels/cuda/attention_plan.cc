#include <algorithm>
#include <utility>

#include "kernels/cuda/attention.h"

namespace nightshift::cuda {
namespace {

// A part of fewer tiles than this is not worth its merge.
constexpr int64_t kMinPartTiles = 2;

// Queries of a span for one kv head that a block has room for.
int RoomFor(int64_t queries, int64_t head_width) {
  if (queries == 1) return 1;
  if (queries <= 8) return 8;
  return head_width <= 128 ? 32 : 16;
}

void AddBlocks(const AttentionArgs& args, const AttentionSpan& span, int32_t first_page,
               AttentionPlan& plan) {
  const int64_t group = args.num_heads / args.layout.kv_heads;
  const int64_t queries = span.num_rows * group;
  for (int64_t first = 0; first < queries; first += plan.queries) {
    const int64_t count = std::min<int64_t>(plan.queries, queries - first);
    const int64_t first_position = span.first_position + first / group;
    const int64_t end_position = span.first_position + (first + count - 1) / group + 1;
    const int64_t first_key =
        args.window > 0 ? std::max<int64_t>(0, first_position + 1 - args.window) : 0;
    plan.blocks.push_back(
        {.first_row = span.first_row,
         .first_position = span.first_position,
         .first_query = static_cast<int32_t>(first),
         .num_queries = static_cast<int32_t>(count),
         .first_page = first_page,
         .first_tile = static_cast<int32_t>(first_key / kTileKeys),
         .end_tile = static_cast<int32_t>((end_position + kTileKeys - 1) / kTileKeys)});
  }
}

// Lets several blocks share the tiles of one, where there are too few blocks for the device.
void Split(const AttentionArgs& args, const AttentionLimits& limits, AttentionPlan& plan) {
  const auto blocks = static_cast<int64_t>(plan.blocks.size()) * args.layout.kv_heads;
  const int64_t wanted_parts = blocks == 0 ? 1 : limits.wanted_blocks / blocks;
  for (QueryBlock& block : plan.blocks) {
    const int64_t tiles = block.end_tile - block.first_tile;
    const int64_t parts = std::min(wanted_parts, tiles / kMinPartTiles);
    const int64_t partials = tiles * args.layout.kv_heads * block.num_queries;
    if (parts <= 1 || plan.num_partials + partials > limits.max_partials) continue;
    block.parts = static_cast<int32_t>(parts);
    block.first_partial = plan.num_partials;
    plan.num_partials += partials;
    plan.max_parts = std::max(plan.max_parts, block.parts);
  }
}

}  // namespace

int64_t PartialFloats(int64_t head_width) {
  return head_width + 2;
}

std::vector<AttentionPlan> PlanAttention(const AttentionArgs& args,
                                         std::span<const int32_t> first_pages,
                                         const AttentionLimits& limits) {
  const int64_t group = args.num_heads / args.layout.kv_heads;
  std::vector<AttentionPlan> plans;
  for (const int queries : {1, 8, 16, 32}) {
    AttentionPlan plan;
    plan.queries = queries;
    for (size_t i = 0; i < args.spans.size(); ++i) {
      const AttentionSpan& span = args.spans[i];
      if (span.num_rows > 0 && RoomFor(span.num_rows * group, args.layout.head_width) == queries) {
        AddBlocks(args, span, first_pages[i], plan);
      }
    }
    if (plan.blocks.empty()) continue;
    Split(args, limits, plan);
    plans.push_back(std::move(plan));
  }
  return plans;
}

}  // namespace nightshift::cuda
