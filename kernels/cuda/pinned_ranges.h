// PinnedRanges: which host memory is pinned, for copies to ask.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>

#include "kernels/base/mutex.h"

namespace nightshift::cuda {

// Pins anonymous memory where it lies, so that what registered it elsewhere (io_uring) may go on.
// Thread-safe.
class PinnedRanges {
 public:
  PinnedRanges() = default;
  ~PinnedRanges();
  PinnedRanges(const PinnedRanges&) = delete;
  PinnedRanges& operator=(const PinnedRanges&) = delete;

  // Where the system refuses, a warning says so, and copies of it are slower.
  void Pin(std::span<std::byte> memory);
  // Memory that Pin was called for, pinned or not.
  void Unpin(std::span<std::byte> memory);
  // Whether all of it is.
  bool Has(std::span<const std::byte> memory) const;

 private:
  mutable Mutex mutex_;
  std::map<uintptr_t, size_t> bytes_by_address_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift::cuda
