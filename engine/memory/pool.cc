#include "engine/memory/pool.h"

#include <cerrno>
#include <cstring>

#include <sys/mman.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
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
  const bool is_large = rounded_bytes >= kHugePageBytes;
  std::byte* data = MapAligned(rounded_bytes, is_large ? kHugePageBytes : kPageBytes);
  if (data == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("map ", rounded_bytes, " bytes for ", purpose,
                                                     " in pool ", name_, ": ",
                                                     std::strerror(errno)));
  }
  // Both are advice: a kernel without huge pages refuses the first and loses only speed.
  const size_t size = static_cast<size_t>(rounded_bytes);
  madvise(data, size, MADV_DONTDUMP);
  if (is_large) {
    madvise(data, size, MADV_HUGEPAGE);
  }
  used_bytes_ += rounded_bytes;
  return Buffer(this, {data, size});
}

void Pool::Release(std::span<std::byte> bytes) {
  used_bytes_ -= static_cast<int64_t>(bytes.size());
  Unmap(bytes.data(), static_cast<int64_t>(bytes.size()));
}

}  // namespace nightshift
