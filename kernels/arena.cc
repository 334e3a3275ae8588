#include "kernels/arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr size_t kPageBytes = 4096;
}  // namespace

Arena::Arena(std::span<std::byte> memory, Clear clear)
    : memory_(memory), clear_(std::move(clear)) {
  CHECK_EQ(reinterpret_cast<uintptr_t>(memory.data()) % kPageBytes, 0U);
  free_[0] = memory.size();
}

int64_t Arena::free_bytes() const {
  size_t bytes = 0;
  for (const auto& [offset, size] : free_) {
    bytes += size;
  }
  return static_cast<int64_t>(bytes);
}

absl::StatusOr<std::span<std::byte>> Arena::Take(int64_t bytes) {
  CHECK_GT(bytes, 0);
  const size_t size = (static_cast<size_t>(bytes) + kPageBytes - 1) / kPageBytes * kPageBytes;
  size_t largest = 0;
  for (const auto& [free_first, free_size] : free_) {
    largest = std::max(largest, free_size);
    if (size > free_size) {
      continue;
    }
    const size_t first = free_first;
    const size_t rest = free_size - size;
    free_.erase(first);
    if (rest > 0) free_[first + size] = rest;
    const std::span<std::byte> part = memory_.subspan(first, size);
    if (const absl::Status cleared = clear_(part); !cleared.ok()) {
      GiveBack(part);
      return cleared;
    }
    return part;
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("take ", size, " bytes of an arena of ", memory_.size(), ": free ", free_bytes(),
                   ", the largest part ", largest));
}

void Arena::GiveBack(std::span<std::byte> part) {
  size_t first = static_cast<size_t>(part.data() - memory_.data());
  size_t end = first + part.size();
  CHECK_LE(end, memory_.size());
  const auto next = free_.lower_bound(first);
  if (next != free_.end() && next->first == end) {
    end = next->first + next->second;
    free_.erase(next);
  }
  const auto after = free_.lower_bound(first);
  if (after != free_.begin()) {
    const auto before = std::prev(after);
    CHECK_LE(before->first + before->second, first);
    if (before->first + before->second == first) {
      first = before->first;
      free_.erase(before);
    }
  }
  free_[first] = end - first;
}

}  // namespace nightshift
