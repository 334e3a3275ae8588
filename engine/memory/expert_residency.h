// ExpertResidency: which experts should be in memory: those that are hit most often. Counts and
// decides, moves nothing.
//
// What an expert costs when it is not in memory is one reading a sweep, whatever the number of its
// rows. So sweeps that hit it are counted, later ones more. Every matrix of an expert has as many
// shards as the same matrix of another of its layer, and a shard in memory gives its place to the
// same one of an expert that is hit more often: what a layer holds in memory stays the same.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "engine/model/weights.h"

namespace nightshift {

// A shard that is being read anyway takes the place of one in memory, of the same size.
struct ShardExchange {
  ShardIndex in;
  ShardIndex out;

  bool operator==(const ShardExchange&) const = default;
};

// Used by one thread.
class ExpertResidency {
 public:
  // Counts a sweep in which rows hit the experts `hit` (ascending) of a layer, and says which of
  // their shards that are not in memory should come in. What goes out is not hit in this sweep, so
  // no exchange costs a reading now. At most kMostExchanges.
  std::vector<ShardExchange> Count(std::span<const ExpertWeights> experts,
                                   std::span<const size_t> hit);

  // A copy of a shard costs a fifth of its reading on a fast disk.
  static constexpr size_t kMostExchanges = 8;

 private:
  // By the layer's first tensor of an expert: for each expert the share of sweeps that hit it.
  std::map<size_t, std::vector<float>> shares_;
};

}  // namespace nightshift
