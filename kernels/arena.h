// Arena: parts of one range of memory that was reserved whole, by addresses alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

// Takes parts of a range first fit and joins what comes back. Never touches the memory, which may be
// a device's. Used by one thread at a time.
class Arena {
 public:
  using Clear = std::function<absl::Status(std::span<std::byte>)>;
  // `memory` begins at a multiple of 4096; `clear` fills a part with zeros.
  Arena(std::span<std::byte> memory, Clear clear);

  // A part of `bytes` (> 0), rounded up to a multiple of 4096 and at one, zeroed.
  // Errors: RESOURCE_EXHAUSTED with asked, free and the largest free part; what `clear` says.
  absl::StatusOr<std::span<std::byte>> Take(int64_t bytes);
  // A whole part that Take gave.
  void GiveBack(std::span<std::byte> part);

  int64_t bytes() const { return static_cast<int64_t>(memory_.size()); }
  int64_t free_bytes() const;

 private:
  std::span<std::byte> memory_;
  Clear clear_;
  std::map<size_t, size_t> free_;  // sizes by offset; no two touch
};

}  // namespace nightshift
