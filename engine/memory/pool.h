// Pool and Buffer: bulk memory under a byte budget.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

#include "kernels/arena.h"
#include "kernels/device.h"

namespace nightshift {

class Pool;

// Whose memory a pool's is.
struct PoolHome {
  Arena* arena = nullptr;    // a device's, which the host cannot read or write
  Device* copies = nullptr;  // the host's, from and to which this device will copy
};

// A reservation in a pool: zeroed memory that counts against the budget until destroyed.
// Move-only; the pool must outlive it. Starts at a multiple of 4096, of 2 MiB from that size up.
class Buffer {
 public:
  Buffer() = default;
  ~Buffer();
  Buffer(Buffer&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), bytes_(std::exchange(other.bytes_, {})) {}
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  friend class Pool;
  Buffer(Pool* pool, std::span<std::byte> bytes) : pool_(pool), bytes_(bytes) {}

  Pool* pool_ = nullptr;
  std::span<std::byte> bytes_;
};

// One tier's memory. Anonymous mappings with transparent huge pages by madvise (never hugetlbfs,
// which escapes memory limits), left out of core dumps. Used by one thread.
class Pool {
 public:
  // What `home` names outlives the pool.
  Pool(std::string name, int64_t budget_bytes, PoolHome home = {})
      : name_(std::move(name)), budget_bytes_(budget_bytes), home_(home) {}
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Reserves `bytes` (> 0) for `purpose`, which the message of a refusal names.
  // Errors: RESOURCE_EXHAUSTED with asked, free and budget, or when the kernel refuses the mapping.
  absl::StatusOr<Buffer> Reserve(int64_t bytes, const char* purpose);

  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t free_bytes() const { return budget_bytes_ - used_bytes_; }

 private:
  friend class Buffer;
  void Release(std::span<std::byte> bytes);
  absl::StatusOr<std::span<std::byte>> Map(int64_t bytes, const char* purpose) const;

  std::string name_;
  int64_t budget_bytes_;
  PoolHome home_;
  int64_t used_bytes_ = 0;
};

}  // namespace nightshift
