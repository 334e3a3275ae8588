// What the machine can do at most, measured: multiply-adds and bytes from memory.
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

// Reads `bytes` bytes (64-byte aligned, a multiple of 4096), each thread its part.
void ReadMemory(const std::byte* memory, int64_t bytes, WorkerPool& pool);

// Copies as many.
void CopyMemory(const std::byte* source, int64_t bytes, std::byte* target, WorkerPool& pool);

}  // namespace nightshift
