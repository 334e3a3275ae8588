// Attention of a few rows of one request for some kv heads, by run-time dispatch.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace nightshift::cpu {

struct AttentionTask {
  const AttentionArgs* args = nullptr;
  const AttentionSpan* span = nullptr;
  int64_t first_row = 0;  // within the span
  int64_t num_rows = 0;
  int64_t first_head = 0;  // kv heads
  int64_t num_heads = 0;   // 1 unless in place
  bool uses_dots = false;  // by VDPBF16PS: queries and weights rounded to bf16; KV is not f32
  // Keys and values are taken as they lie in the pages, which pays for few queries; else each tile
  // is laid out first. The bits are the same.
  bool in_place = false;
  bool is_sparse = false;    // all rows, or none
  float* scratch = nullptr;  // of AttentionScratchFloats(task), 64-byte aligned
};

// Cuts a call into tasks without scratch that `num_threads` threads take in turn, those that take
// long first.
std::vector<AttentionTask> CutAttention(const AttentionArgs& args, bool uses_dots, int num_threads);

int64_t AttentionScratchFloats(const AttentionTask& task);

// Writes out for the task's rows and the heads of its groups.
// Each tile of 64 keys is reduced on its own (scores over d ascending, its own maximum, values over
// keys ascending) and merged into the running result in ascending order; so a query's bits depend
// only on its own position and the pages, and tiles could be computed apart and merged.
// Keys behind a query's position or before its window never enter a sum, so what lies there may be
// anything; pages before every row's window are not read.
// Sparse rows: sparse_attention-inl.h.
void AttendTask(const AttentionTask& task);

}  // namespace nightshift::cpu
