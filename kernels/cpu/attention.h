// Attention of a few rows of one request for one kv head, by run-time dispatch.
#pragma once

#include <cstdint>

#include "kernels/ops.h"

namespace nightshift::cpu {

// Rows of one task: enough queries (rows x heads of the group) to share the cost of laying out a
// key tile, few enough that their scores stay in the second-level cache.
int64_t AttentionTaskRows(const AttentionArgs& args);

struct AttentionTask {
  const AttentionArgs* args = nullptr;
  const AttentionSpan* span = nullptr;
  int64_t first_row = 0;  // within the span
  int64_t num_rows = 0;
  int64_t kv_head = 0;
  bool uses_dots = false;    // by VDPBF16PS: queries and weights rounded to bf16; KV is bf16
  float* scratch = nullptr;  // 64-byte aligned
};

// Floats of scratch that a task like this of AttentionTaskRows(args) rows needs.
int64_t AttentionScratchFloats(const AttentionTask& task);

// Writes out for the task's rows and the heads of its group.
// Each tile of 64 keys is reduced on its own (scores over d ascending, its own maximum, values over
// keys ascending) and merged into the running result in ascending order; so a query's bits depend
// only on its own position and the pages, and tiles could be computed apart and merged.
// Keys behind a query's position or before its window never enter a sum, so what lies there may be
// anything; pages before every row's window are not read.
void AttendTask(const AttentionTask& task);

}  // namespace nightshift::cpu
