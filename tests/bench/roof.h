// What the machine can do at most, measured: multiply-adds. Bytes of memory are
// kernels/base/memory_traffic.h.
#pragma once

#include <cstdint>
#include <string>

#include "kernels/base/worker_pool.h"
#include "kernels/dtype.h"

namespace nightshift {

// Operations of one call of RunPeakLoop on each thread: independent multiply-adds in registers, by
// the widest vectors of the target ("AVX3", "AVX2", others count as AVX2). For bf16 the machine's
// dots where the target is "AVX3_BF16" (VDPBF16PS), for int8 products of bytes: there VPDPBUSD, else
// VPMADDUBSW and what adds up its words.
struct PeakLoop {
  std::string target;
  ComputeType compute = ComputeType::kF32;
};
int64_t PeakLoopFlops(const PeakLoop& loop);
void RunPeakLoop(const PeakLoop& loop, WorkerPool& pool);

}  // namespace nightshift
