#include "engine/memory/pool.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

constexpr int64_t kPageBytes = 4096;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

void Unmap(std::byte* data, int64_t bytes) {
  if (bytes > 0) {
    CHECK_EQ(munmap(data, static_cast<size_t>(bytes)), 0);
  }
}

// Maps `bytes` at a multiple of `alignment`, by cutting a longer mapping at both ends.
std::byte* MapAligned(int64_t bytes, int64_t alignment) {
  const int64_t mapped_bytes = bytes + alignment - kPageBytes;
  void* mapped = mmap(nullptr, static_cast<size_t>(mapped_bytes), PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) {
    return nullptr;
  }
  std::byte* first = static_cast<std::byte*>(mapped);
  const int64_t head =
      RoundUp(static_cast<int64_t>(reinterpret_cast<uintptr_t>(first)), alignment) -
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(first));
  Unmap(first, head);
  Unmap(first + head + bytes, mapped_bytes - head - bytes);
  return first + head;
}

}  // namespace

Buffer::~Buffer() {
  if (pool_ != nullptr) {
    pool_->Release(bytes_);
  }
}

Pool::~Pool() {
  CHECK_EQ(used_bytes_, 0);
}

absl::StatusOr<Buffer> Pool::Reserve(int64_t bytes, const char* purpose) {
  CHECK_GT(bytes, 0);
  const int64_t rounded_bytes = RoundUp(bytes, kPageBytes);
  if (rounded_bytes > free_bytes()) {
    return absl::ResourceExhaustedError(
        absl::StrCat("reserve memory for ", purpose, " in pool ", name_, ": asked ", rounded_bytes,
                     " bytes, free ", free_bytes(), ", budget ", budget_bytes_));
  }
  std::span<std::byte> memory;
  if (home_.arena != nullptr) {
    ASSIGN_OR_RETURN(memory, home_.arena->Take(rounded_bytes));
  } else {
    ASSIGN_OR_RETURN(memory, Map(rounded_bytes, purpose));
  }
  used_bytes_ += rounded_bytes;
  return Buffer(this, memory);
}

absl::StatusOr<std::span<std::byte>> Pool::Map(int64_t bytes, const char* purpose) const {
  const bool is_large = bytes >= kHugePageBytes;
  std::byte* data = MapAligned(bytes, is_large ? kHugePageBytes : kPageBytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("map ", bytes, " bytes for ", purpose,
                                                     " in pool ", name_, ": ",
                                                     std::strerror(errno)));
  }
  // Both are advice: a kernel without huge pages refuses the first and loses only speed.
  const std::span<std::byte> memory(data, static_cast<size_t>(bytes));
  madvise(data, memory.size(), MADV_DONTDUMP);
  if (is_large) {
    madvise(data, memory.size(), MADV_HUGEPAGE);
  }
  if (home_.copies != nullptr) {
    home_.copies->Pin(memory);
  }
  return memory;
}

void Pool::Release(std::span<std::byte> bytes) {
  used_bytes_ -= static_cast<int64_t>(bytes.size());
  if (home_.arena != nullptr) {
    home_.arena->GiveBack(bytes);
    return;
  }
  if (home_.copies != nullptr) {
    home_.copies->Unpin(bytes);
  }
  Unmap(bytes.data(), static_cast<int64_t>(bytes.size()));
}

}  // namespace nightshift
