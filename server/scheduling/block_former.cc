#include "server/scheduling/block_former.h"

#include <algorithm>
#include <numeric>
#include <tuple>

namespace nightshift {
namespace {

constexpr int64_t kFirstSuspects = 16;

bool IsSuspect(int32_t attempt) {
  return attempt > 1;
}

std::vector<size_t> InOrder(std::span<const BlockCandidate> candidates) {
  std::vector<size_t> order(candidates.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto key = [&](size_t i) {
    const BlockCandidate& candidate = candidates[i];
    return std::make_tuple(!IsSuspect(candidate.attempt), -candidate.priority,
                           candidate.job_create_time_us, candidate.index, candidate.choice);
  };
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  return order;
}

}  // namespace

int64_t MaxRequestsOfAttempt(int32_t attempt, int64_t max_requests) {
  if (attempt <= 1) {
    return max_requests;
  }
  return attempt == 2 ? std::min(kFirstSuspects, max_requests) : 1;
}

std::vector<size_t> FormBlock(std::span<const BlockCandidate> candidates, const BlockRoom& room) {
  std::vector<size_t> joined;
  int64_t held = room.held_requests;
  int32_t attempt = room.held_attempt;
  for (const size_t i : InOrder(candidates)) {
    const BlockCandidate& candidate = candidates[i];
    // Waits until the block is empty of the other kind.
    if (held > 0 && IsSuspect(candidate.attempt) != IsSuspect(attempt)) {
      break;
    }
    attempt = std::max(attempt, candidate.attempt);
    if (held >= MaxRequestsOfAttempt(attempt, room.max_requests)) {
      break;
    }
    joined.push_back(i);
    ++held;
  }
  return joined;
}

}  // namespace nightshift
