// ExpertStream: the shards of experts that are not on the device, read ahead in the order in which a
// layer uses them, which is that of the file. Which they are is known when the layer's rows are
// routed: only what is hit is read, once for all rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "absl/status/status.h"

#include "engine/memory/expert_residency.h"
#include "engine/memory/resident_weights.h"
#include "engine/memory/shard_reader.h"
#include "engine/model/weights.h"

namespace nightshift {

// Used by one thread. References must outlive it.
class ExpertStream {
 public:
  // `memory`: for what is on its way, slots of `slot_bytes`, which hold the largest shard.
  // `resident` is told which shards come to the device for good and which go.
  ExpertStream(ShardReader& reader, std::span<std::byte> memory, size_t slot_bytes,
               ResidentWeights& resident)
      : reader_(reader), memory_(memory), slot_bytes_(slot_bytes), resident_(resident) {}

  // As WeightAccess::BeginExperts. What was begun before has been released.
  void Begin(const ExpertDemand& demand);

  // The next shard, waited for.
  struct Arrival {
    ShardIndex shard;
    std::span<const std::byte> stored;  // on the host
    std::byte* place = nullptr;  // where on the device it stays, as ops read it; null: nowhere
    absl::Status status;         // as ShardReader::Wait; if not OK `stored` has no meaning
  };
  Arrival Acquire();
  void Release();

  // Since the beginning: bytes asked of the disk, and shards that came to the device for good.
  int64_t read_bytes() const { return read_bytes_; }
  int64_t num_exchanges() const { return num_exchanges_; }

 private:
  struct Coming {
    PendingShard read;                     // without memory where the host keeps the shard
    std::span<const std::byte> from_host;  // then its bytes
  };

  // Submits as many reads as there are free slots.
  void ReadAhead();

  ShardReader& reader_;
  const std::span<std::byte> memory_;
  const size_t slot_bytes_;
  ResidentWeights& resident_;
  ExpertResidency residency_;
  std::vector<ShardIndex> order_;
  size_t next_ = 0;            // of order_ to be submitted
  size_t num_submitted_ = 0;   // reads of this order
  size_t num_in_slots_ = 0;    // reads that are on their way or in use
  std::deque<Coming> coming_;  // oldest first
  std::vector<ShardExchange> exchanges_;
  int64_t read_bytes_ = 0;
  int64_t num_exchanges_ = 0;
};

}  // namespace nightshift
