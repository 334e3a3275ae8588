#include <algorithm>

#include "kernels/cpu/attention.h"

namespace nightshift::cpu {
namespace {

// Queries of a task that lays out its tiles: enough to share the cost of that, few enough that
// their scores stay in the second-level cache.
constexpr int64_t kLaidOutQueries = 128;
constexpr int64_t kLaidOutRows = 64;
// Up to this many queries of a head are taken in place.
constexpr int64_t kFewQueries = 16;
// Of all heads of a task in place: their states stay in the second-level cache.
constexpr int64_t kInPlaceQueries = 128;

int64_t Keys(const AttentionTask& task) {
  const int64_t last = task.span->first_position + task.first_row + task.num_rows;
  const int64_t window = task.args->window;
  return window == 0 ? last : std::min(last, window + task.num_rows);
}

// Multiply-adds, all but for a factor.
int64_t Work(const AttentionTask& task) {
  return Keys(task) * task.num_rows * task.num_heads;
}

}  // namespace

std::vector<AttentionTask> CutAttention(const AttentionArgs& args, bool uses_dots,
                                        int num_threads) {
  const int64_t kv_heads = args.layout.kv_heads;
  const int64_t group = args.num_heads / kv_heads;
  const int64_t most_rows = std::clamp<int64_t>(kLaidOutQueries / group, 1, kLaidOutRows);
  // Heads beside each other lie beside each other in a page: the more of them a task takes, the
  // longer are the runs that it reads. Few enough that each thread has some tasks.
  const int64_t wanted_parts = (4 * num_threads + static_cast<int64_t>(args.spans.size()) - 1) /
                               std::max<int64_t>(1, static_cast<int64_t>(args.spans.size()));
  const int64_t most_heads = std::max<int64_t>(1, kv_heads / wanted_parts);
  std::vector<AttentionTask> tasks;
  for (const AttentionSpan& span : args.spans) {
    for (int64_t row = 0; row < span.num_rows; row += most_rows) {
      const int64_t rows = std::min(most_rows, span.num_rows - row);
      const bool in_place = rows * group <= kFewQueries &&
                            (args.layout.is_packed() || args.layout.head_width % 16 == 0);
      const int64_t heads =
          in_place ? std::clamp<int64_t>(kInPlaceQueries / (rows * group), 1, most_heads) : 1;
      for (int64_t head = 0; head < kv_heads; head += heads) {
        tasks.push_back({.args = &args,
                         .span = &span,
                         .first_row = row,
                         .num_rows = rows,
                         .first_head = head,
                         .num_heads = std::min(heads, kv_heads - head),
                         .uses_dots = uses_dots,
                         .in_place = in_place});
      }
    }
  }
  std::stable_sort(tasks.begin(), tasks.end(), [](const AttentionTask& a, const AttentionTask& b) {
    return Work(a) > Work(b);
  });
  return tasks;
}

}  // namespace nightshift::cpu
