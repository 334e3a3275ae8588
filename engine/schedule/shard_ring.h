// ShardRing: the places of shards in a ring of bytes, first in, first out. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace nightshift {

class ShardRing {
 public:
  explicit ShardRing(int64_t bytes) : bytes_(bytes) {}

  // Bytes of a ring that holds shards of `total_bytes` together wherever the first one lies, the
  // largest of them `largest_bytes`: a shard that does not fit in front of the end begins at 0.
  static int64_t BytesFor(int64_t total_bytes, int64_t largest_bytes) {
    return total_bytes + largest_bytes;
  }

  // Takes the place of the next shard and gives its offset; nothing while shards that were placed
  // before are in the way. bytes > 0.
  std::optional<int64_t> Place(int64_t bytes);
  // The oldest shard goes.
  void Release();

  size_t num_shards() const { return places_.size(); }
  // From the oldest shard to the youngest one, with what is skipped at the end of the ring.
  int64_t used_bytes() const;

 private:
  struct PlaceInRing {
    int64_t offset = 0;
    int64_t bytes = 0;
  };

  int64_t bytes_;
  std::deque<PlaceInRing> places_;
};

}  // namespace nightshift
