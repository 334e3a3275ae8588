// RaceChecker: what was done to device memory, and whether what is done next is ordered behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/support/cuda_emulator/stream_queue.h"

namespace nightshift::cuda_emulator {

// For each stream, how many of its works are known to be over. Source: Mattern (1989), "Virtual Time
// and Global States of Distributed Systems".
class VectorClock {
 public:
  uint64_t of(uint64_t stream) const;
  void Set(uint64_t stream, uint64_t works) { works_[stream] = works; }
  // Knows all that either knew.
  void Join(const VectorClock& other);

 private:
  std::unordered_map<uint64_t, uint64_t> works_;
};

// A work as the checker sees it: the `number`-th of its stream, 1 the first, issued when all that
// `before` counts was known to be over.
struct Work {
  const char* name = "";
  uint64_t stream = 0;
  uint64_t number = 0;
};

// Used by one thread at a time.
class RaceChecker {
 public:
  // Remembers the work's accesses. Returns what it clashes with: both works, the addresses and who
  // writes; nothing if all that it touches is ordered before it.
  std::optional<std::string> Add(const Work& work, const VectorClock& before,
                                 std::span<const Access> accesses);
  // Drops what is over for everybody: `host` is part of all that comes later.
  void ForgetBefore(const VectorClock& host);
  void ForgetAll() { past_.clear(); }
  size_t num_remembered() const { return past_.size(); }

 private:
  struct Past {
    Work work;
    Access access;
  };
  std::vector<Past> past_;
};

}  // namespace nightshift::cuda_emulator
