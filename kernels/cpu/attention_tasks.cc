#include <algorithm>
#include <utility>
#include <vector>

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
// Scores that sparse rows keep: 256 KiB, of a second-level cache of 512 KiB and more.
constexpr int64_t kKeptScores = 65536;

int64_t Keys(const AttentionTask& task) {
  const int64_t last = task.span->first_position + task.first_row + task.num_rows;
  const int64_t window = task.args->window;
  return window == 0 ? last : std::min(last, window + task.num_rows);
}

// Rows of a request that become tasks of one kind.
struct RowRange {
  int64_t first = 0;
  int64_t last = 0;
  bool is_sparse = false;
};

// Multiply-adds, all but for a factor.
int64_t Work(const AttentionTask& task) {
  return Keys(task) * task.num_rows * task.num_heads;
}

class Cutter {
 public:
  Cutter(const AttentionArgs& args, bool uses_dots, int num_threads)
      : args_(args), uses_dots_(uses_dots), group_(args.num_heads / args.layout.kv_heads) {
    // Heads beside each other lie beside each other in a page: the more of them a task takes, the
    // longer are the runs that it reads. Few enough that each thread has some tasks.
    const auto spans = static_cast<int64_t>(args.spans.size());
    const int64_t wanted_parts = (4 * num_threads + spans - 1) / std::max<int64_t>(1, spans);
    most_heads_ = std::max<int64_t>(1, args.layout.kv_heads / wanted_parts);
  }

  void Add(const AttentionSpan& span) {
    const int64_t dense_rows =
        args_.sparse_fraction < 1.0
            ? std::clamp<int64_t>(span.sparse_from - span.first_position, 0, span.num_rows)
            : span.num_rows;
    AddRows(span, {.first = 0, .last = dense_rows});
    AddRows(span, {.first = dense_rows, .last = span.num_rows, .is_sparse = true});
  }

  std::vector<AttentionTask> Take() { return std::move(tasks_); }

 private:
  // Of sparse rows as many as share a walk over the keys.
  int64_t MostRows(const AttentionSpan& span, const RowRange& rows) const {
    if (!rows.is_sparse) return std::clamp<int64_t>(kLaidOutQueries / group_, 1, kLaidOutRows);
    const int64_t keys = span.first_position + rows.last;
    return std::clamp<int64_t>(kKeptScores / (group_ * keys), 1,
                               std::max<int64_t>(1, kFewQueries / group_));
  }

  int64_t MostHeads(const AttentionSpan& span, const RowRange& rows) const {
    const int64_t queries = (rows.last - rows.first) * group_;
    const int64_t most = std::clamp<int64_t>(kInPlaceQueries / queries, 1, most_heads_);
    if (!rows.is_sparse) return most;
    return std::clamp<int64_t>(kKeptScores / (queries * (span.first_position + rows.last)), 1, most);
  }

  void AddRows(const AttentionSpan& span, const RowRange& all) {
    const int64_t most_rows = MostRows(span, all);
    for (int64_t row = all.first; row < all.last; row += most_rows) {
      const RowRange rows = {.first = row,
                             .last = std::min(row + most_rows, all.last),
                             .is_sparse = all.is_sparse};
      const int64_t count = rows.last - rows.first;
      const bool in_place = (rows.is_sparse || count * group_ <= kFewQueries) &&
                            (args_.layout.is_packed() || args_.layout.head_width % 16 == 0);
      const int64_t heads = in_place ? MostHeads(span, rows) : 1;
      for (int64_t head = 0; head < args_.layout.kv_heads; head += heads) {
        tasks_.push_back({.args = &args_,
                          .span = &span,
                          .first_row = row,
                          .num_rows = count,
                          .first_head = head,
                          .num_heads = std::min(heads, args_.layout.kv_heads - head),
                          .uses_dots = uses_dots_,
                          .in_place = in_place,
                          .is_sparse = rows.is_sparse});
      }
    }
  }

  const AttentionArgs& args_;
  const bool uses_dots_;
  const int64_t group_;  // query heads of a kv head
  int64_t most_heads_ = 1;
  std::vector<AttentionTask> tasks_;
};

}  // namespace

std::vector<AttentionTask> CutAttention(const AttentionArgs& args, bool uses_dots,
                                        int num_threads) {
  Cutter cutter(args, uses_dots, num_threads);
  for (const AttentionSpan& span : args.spans) {
    cutter.Add(span);
  }
  std::vector<AttentionTask> tasks = cutter.Take();
  std::stable_sort(tasks.begin(), tasks.end(), [](const AttentionTask& a, const AttentionTask& b) {
    return Work(a) > Work(b);
  });
  return tasks;
}

}  // namespace nightshift::cpu
