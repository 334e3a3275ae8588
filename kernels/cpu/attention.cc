#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_arrays.h"
#include "kernels/cpu/bf16_dots.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention.cc"
#include <hwy/foreach_target.h>
// After foreach_target.h, which includes this file again for each target.
#include "kernels/cpu/attention_layout-inl.h"
#include "kernels/cpu/attention_merge-inl.h"
#include "kernels/cpu/attention_multiply-inl.h"
#include "kernels/cpu/attention_scores-inl.h"
#include "kernels/cpu/attention_values-inl.h"
#include "kernels/cpu/packed_attention-inl.h"
#include "kernels/cpu/simd-inl.h"
#include "kernels/cpu/sparse_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace nightshift::cpu::HWY_NAMESPACE {

// Lays out the task's queries.
void LoadQueries(const AttentionTask& task, const TaskArrays& arrays) {
  const int64_t queries = NumQueries(task);
  const int64_t width = task.args->layout.head_width;
  for (int64_t query = 0; query < queries; ++query) {
    const float* source = QueryRow(task, task.args->q, query);
    if (!task.uses_dots) {
      std::memcpy(arrays.q + query * PaddedHeadWidth(*task.args), source,
                  static_cast<size_t>(width) * sizeof(float));
      continue;
    }
    for (int64_t d = 0; d < width; d += kSegmentInputs) {
      auto* target =
          reinterpret_cast<std::byte*>(arrays.q + (d / kSegmentInputs * queries + query) * 32);
      RoundForDots(source + d, std::min(kSegmentInputs, width - d), target);
    }
  }
}

// Raw scores of queries [first_query, end_query) with a tile that is laid out.
void ScoreLaidOut(const AttentionTask& task, const TaskArrays& arrays, int64_t first_query,
                  int64_t end_query) {
  const int64_t width = PaddedHeadWidth(*task.args);
  if (task.uses_dots) {
    ScoreByDots(task, arrays, first_query, end_query);
  } else {
    Multiply(arrays.q + first_query * width, width, end_query - first_query, arrays.keys, kTileKeys,
             task.args->layout.head_width, arrays.scores + first_query * kTileKeys);
  }
}

// tile_out of queries [query, query + count), which see the same keys.
void SumLaidOut(const AttentionTask& task, const TaskArrays& arrays, const KeyRange& keys,
                int64_t query, int64_t count) {
  const int64_t width = PaddedHeadWidth(*task.args);
  if (task.uses_dots) {
    SumByDots(task, arrays, keys, query, count);
  } else {
    Multiply(arrays.scores + query * kTileKeys + keys.first, kTileKeys, count,
             arrays.values + keys.first * width, width, keys.last - keys.first,
             arrays.tile_out + query * width);
  }
}

// Many queries of one head: each key tile is laid out for them.
void AttendLaidOut(const AttentionTask& task, const TaskArrays& arrays) {
  LoadQueries(task, arrays);
  const int64_t group = GroupHeads(*task.args);
  ForEachTile(task, [&](const KeyTile& tile) {
    LoadTile(task, arrays, tile);
    ScoreLaidOut(task, arrays, tile.first_row * group, tile.end_row * group);
    WeighTile(task, arrays, tile);
    ForEachRun(task, tile, 0, [&](const KeyRange& keys, int64_t query, int64_t count) {
      SumLaidOut(task, arrays, keys, query, count);
    });
    MergeTile(task, arrays, tile);
  });
}

// Few queries of some heads: laying a tile out would cost more than multiplying with it. Heads of a
// page are read one after the other, so that memory is read in long runs.
template <typename T>
void AttendPages(const AttentionTask& task, const TaskArrays& arrays) {
  ForEachTile(task, [&](const KeyTile& tile) {
    ScoreTile<T>(task, arrays, tile);
    WeighTile(task, arrays, tile);
    for (int64_t head = 0; head < task.num_heads; ++head) {
      ForEachRun(task, tile, head, [&](const KeyRange& keys, int64_t query, int64_t count) {
        SumHead<T>(task, arrays, tile, head, keys, query, count);
      });
    }
    MergeTile(task, arrays, tile);
  });
}

void AttendInPlace(const AttentionTask& task, const TaskArrays& arrays) {
  LoadQueriesInPlace(task, arrays);
  if (task.args->layout.dtype == DType::kF32) {
    AttendPages<float>(task, arrays);
  } else {
    AttendPages<uint16_t>(task, arrays);
  }
}

void LoadSparseQueries(const AttentionTask& task, const TaskArrays& arrays) {
  if (task.args->layout.is_packed()) {
    LoadPackedInPlace(task, arrays);
  } else if (task.in_place) {
    LoadQueriesInPlace(task, arrays);
  } else {
    LoadQueries(task, arrays);
  }
}

// Raw scores of all queries, with the bits that dense rows have.
void ScoreSparse(const AttentionTask& task, const TaskArrays& arrays, const KeyTile& tile) {
  const KvPageLayout& layout = task.args->layout;
  if (layout.is_packed()) {
    for (int64_t head = 0; head < task.num_heads; ++head) {
      ScorePackedInPlace(task, arrays, tile, head);
    }
  } else if (!task.in_place) {
    LoadTile(task, arrays, tile);
    ScoreLaidOut(task, arrays, 0, NumQueries(task));
  } else if (layout.dtype == DType::kF32) {
    ScoreTile<float>(task, arrays, tile);
  } else {
    ScoreTile<uint16_t>(task, arrays, tile);
  }
}

void AttendSparse(const AttentionTask& task, const TaskArrays& arrays) {
  LoadSparseQueries(task, arrays);
  ForEachTile(task, [&](const KeyTile& tile) {
    ScoreSparse(task, arrays, tile);
    KeepScores(task, arrays, tile);
  });
  AddKeptValues(task, arrays);
}

void AttendTaskSimd(const AttentionTask& task) {
  const TaskArrays arrays(task);
  if (task.is_sparse) {
    AttendSparse(task, arrays);
    return;
  }
  StartQueries(task, arrays);
  if (task.args->layout.is_packed()) {
    AttendPacked(task, arrays);
  } else if (task.in_place) {
    AttendInPlace(task, arrays);
  } else {
    AttendLaidOut(task, arrays);
  }
  StoreOut(task, arrays);
}

}  // namespace nightshift::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace nightshift::cpu {

HWY_EXPORT(AttendTaskSimd);

int64_t AttentionScratchFloats(const AttentionTask& task) {
  return TaskArrays::Floats(task);
}

void AttendTask(const AttentionTask& task) {
  HWY_DYNAMIC_DISPATCH(AttendTaskSimd)(task);
}

}  // namespace nightshift::cpu
#endif
