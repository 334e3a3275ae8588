#include "engine/schedule/shard_ring.h"

#include "kernels/base/check.h"

namespace nightshift {

std::optional<int64_t> ShardRing::Place(int64_t bytes) {
  CHECK_GT(bytes, 0);
  int64_t offset = 0;
  int64_t end = bytes_;
  if (!places_.empty()) {
    const int64_t oldest = places_.front().offset;
    offset = places_.back().offset + places_.back().bytes;
    const bool is_wrapped = offset <= oldest;
    if (is_wrapped) {
      end = oldest;
    } else if (bytes_ - offset < bytes) {
      offset = 0;
      end = oldest;
    }
  }
  if (end - offset < bytes) {
    return std::nullopt;
  }
  places_.push_back({offset, bytes});
  return offset;
}

void ShardRing::Release() {
  CHECK(!places_.empty());
  places_.pop_front();
}

int64_t ShardRing::used_bytes() const {
  if (places_.empty()) {
    return 0;
  }
  const int64_t first = places_.front().offset;
  const int64_t end = places_.back().offset + places_.back().bytes;
  return end > first ? end - first : bytes_ - first + end;
}

}  // namespace nightshift
