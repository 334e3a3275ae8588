#include "engine/memory/expert_stream.h"

#include <algorithm>
#include <utility>

#include "kernels/base/check.h"

namespace nightshift {

void ExpertStream::Begin(const ExpertDemand& demand) {
  CHECK(coming_.empty());
  CHECK_EQ(next_, order_.size());
  exchanges_ = residency_.Count(demand.experts, demand.hit);
  order_.assign(demand.streamed.begin(), demand.streamed.end());
  next_ = num_submitted_ = 0;
  ReadAhead();
}

ExpertStream::Arrival ExpertStream::Acquire() {
  CHECK(!coming_.empty());
  const Coming& oldest = coming_.front();
  const ShardIndex shard = oldest.read.shard;
  const size_t bytes = static_cast<size_t>(reader_.EntryOf(shard).bytes);
  if (!oldest.from_host.empty()) {
    return {.shard = shard, .stored = oldest.from_host.first(bytes), .status = {}};
  }
  Arrival arrival{.shard = shard,
                  .stored = oldest.read.memory.first(bytes),
                  .status = reader_.Wait(oldest.read)};
  const auto exchange =
      std::find_if(exchanges_.begin(), exchanges_.end(),
                   [&](const ShardExchange& one) { return one.in == shard; });
  if (arrival.status.ok() && exchange != exchanges_.end()) {
    arrival.place = resident_.Exchange(exchange->in, exchange->out);
    exchanges_.erase(exchange);
    ++num_exchanges_;
  }
  return arrival;
}

void ExpertStream::Release() {
  CHECK(!coming_.empty());
  num_in_slots_ -= coming_.front().from_host.empty() ? 1 : 0;
  coming_.pop_front();
  ReadAhead();
}

void ExpertStream::ReadAhead() {
  const size_t num_slots = memory_.size() / slot_bytes_;
  while (next_ < order_.size()) {
    const ShardIndex shard = order_[next_];
    const std::span<const std::byte> from_host = resident_.FindOnHost(shard);
    if (from_host.empty() && num_in_slots_ == num_slots) {
      return;
    }
    ++next_;
    if (!from_host.empty()) {
      coming_.push_back({.read = {shard, {}, nullptr}, .from_host = from_host});
      continue;
    }
    const size_t slot = num_submitted_++ % num_slots;
    coming_.push_back(
        {.read = reader_.Submit({shard, memory_.subspan(slot * slot_bytes_, slot_bytes_)}),
         .from_host = {}});
    ++num_in_slots_;
    read_bytes_ += static_cast<int64_t>(coming_.back().read.memory.size());
  }
}

}  // namespace nightshift
