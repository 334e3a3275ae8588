// What the machine can do at most, measured: multiply-adds. Bytes of memory are
// kernels/base/memory_traffic.h.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/worker_pool.h"

namespace nightshift {

// Floating-point operations of one call of RunPeakLoop on each thread: independent multiply-adds in
// registers, of the widest vectors of the target ("AVX3", "AVX2", others count as AVX2), or bf16
// dots (VDPBF16PS, target "AVX3_BF16" and `dots`).
struct PeakLoop {
  std::string target;
  bool dots = false;
};
int64_t PeakLoopFlops(const PeakLoop& loop);
void RunPeakLoop(const PeakLoop& loop, WorkerPool& pool);

}  // namespace nightshift
