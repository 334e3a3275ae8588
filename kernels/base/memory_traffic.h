// What the machine's memory can bring and take at most: plain reads and copies by all threads.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/base/worker_pool.h"

namespace nightshift {

// Reads `bytes` bytes (8-byte aligned, a multiple of 4096), each thread its part. Returns all
// 64-bit words xored, so that no read can be left out.
uint64_t ReadMemory(const std::byte* memory, int64_t bytes, WorkerPool& pool);

// Copies as many, in parts that go through the caches, as what ops write does. The two must not
// overlap.
void CopyMemory(const std::byte* source, int64_t bytes, std::byte* target, WorkerPool& pool);

}  // namespace nightshift
