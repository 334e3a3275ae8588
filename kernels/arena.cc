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
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t RoundedUp(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

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
  const size_t size = RoundedUp(static_cast<size_t>(bytes), kPageBytes);
  const size_t alignment = size >= kHugePageBytes ? kHugePageBytes : kPageBytes;
  size_t largest = 0;
  for (const auto& [offset, free_size] : free_) {
    largest = std::max(largest, free_size);
    const size_t first = RoundedUp(offset, alignment);
    if (first + size > offset + free_size) {
      continue;
    }
    const size_t free_offset = offset;
    const size_t end = offset + free_size;
    free_.erase(free_offset);
    if (first > free_offset) free_[free_offset] = first - free_offset;
    if (first + size < end) free_[first + size] = end - first - size;
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
