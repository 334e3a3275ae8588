#include "engine/memory/expert_residency.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

// A sweep counts 1/32 of all before it: a change of what is asked shows within some tens of sweeps.
constexpr float kWeight = 1.0F / 32;
// By how much an expert must be hit more often: less than one sweep, so that memory is used from the
// first on, and more than nothing, so that equal ones stay where they are.
constexpr float kMargin = kWeight / 2;

const MatMulWeights& MatrixOf(const ExpertWeights& expert, int matrix) {
  return matrix == 0 ? expert.gate : matrix == 1 ? expert.up : expert.down;
}

bool IsResident(const MatMulWeights& weights, size_t shard) {
  return weights.matrix.shards[shard].data != nullptr;
}

}  // namespace

std::vector<ShardExchange> ExpertResidency::Count(std::span<const ExpertWeights> experts,
                                                  std::span<const size_t> hit) {
  CHECK(!experts.empty());
  std::vector<float>& shares = shares_[experts[0].gate.tensor];
  shares.resize(experts.size(), 0.0F);
  std::vector<size_t> wanted(hit.begin(), hit.end());
  std::vector<size_t> idle;
  for (size_t i = 0, next = 0; i < experts.size(); ++i) {
    const bool is_hit = next < hit.size() && hit[next] == i;
    next += is_hit ? 1 : 0;
    shares[i] += kWeight * ((is_hit ? 1.0F : 0.0F) - shares[i]);
    if (!is_hit) {
      idle.push_back(i);
    }
  }
  // Ties by number, so that the same hits always lead to the same places.
  const auto more = [&](size_t a, size_t b) {
    return shares[a] > shares[b] || (shares[a] == shares[b] && a < b);
  };
  std::sort(wanted.begin(), wanted.end(), more);
  std::sort(idle.rbegin(), idle.rend(), more);
  std::vector<ShardExchange> exchanges;
  for (int matrix = 0; matrix < 3; ++matrix) {
    const size_t num_shards = MatrixOf(experts[0], matrix).matrix.shards.size();
    for (size_t shard = 0; shard < num_shards; ++shard) {
      auto out = idle.begin();
      for (const size_t in : wanted) {
        if (IsResident(MatrixOf(experts[in], matrix), shard)) {
          continue;
        }
        while (out != idle.end() && !IsResident(MatrixOf(experts[*out], matrix), shard)) {
          ++out;
        }
        if (out == idle.end() || shares[in] <= shares[*out] + kMargin ||
            exchanges.size() == kMostExchanges) {
          break;
        }
        exchanges.push_back({.in = {MatrixOf(experts[in], matrix).tensor, shard},
                             .out = {MatrixOf(experts[*out], matrix).tensor, shard}});
        ++out;
      }
    }
  }
  return exchanges;
}

}  // namespace nightshift
