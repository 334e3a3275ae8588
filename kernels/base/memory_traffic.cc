#include "kernels/base/memory_traffic.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

namespace nightshift {
namespace {

// Of one task. Copies below some MiB do not go around the caches in any libc that we know.
constexpr int64_t kPartBytes = 1 << 20;

// Independent words, so that no xor waits for the one before.
using Line = std::array<uint64_t, 8>;

uint64_t ReadPart(const std::byte* memory, int64_t bytes) {
  Line sums = {};
  for (int64_t i = 0; i < bytes; i += static_cast<int64_t>(sizeof(Line))) {
    Line line;
    std::memcpy(line.data(), memory + i, sizeof(line));
    for (size_t j = 0; j < line.size(); ++j) {
      sums[j] ^= line[j];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t word : sums) {
    sum ^= word;
  }
  return sum;
}

int64_t NumParts(int64_t bytes) {
  return (bytes + kPartBytes - 1) / kPartBytes;
}

}  // namespace

uint64_t ReadMemory(const std::byte* memory, int64_t bytes, WorkerPool& pool) {
  std::atomic<uint64_t> sum{0};
  pool.ParallelFor(NumParts(bytes), [&](int64_t part, int) {
    const int64_t first = part * kPartBytes;
    sum ^= ReadPart(memory + first, std::min(kPartBytes, bytes - first));
  });
  return sum.load();
}

void CopyMemory(const std::byte* source, int64_t bytes, std::byte* target, WorkerPool& pool) {
  pool.ParallelFor(NumParts(bytes), [&](int64_t part, int) {
    const int64_t first = part * kPartBytes;
    std::memcpy(target + first, source + first,
                static_cast<size_t>(std::min(kPartBytes, bytes - first)));
  });
}

}  // namespace nightshift
