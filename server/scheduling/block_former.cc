#include "server/scheduling/block_former.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

namespace nightshift {
namespace {

constexpr int64_t kFirstSuspects = 16;

bool IsSuspect(int32_t attempt) {
  return attempt > 1;
}

// One job's candidates of one priority, as they should run.
void OrderJob(std::span<const BlockCandidate> candidates, std::vector<size_t>& members) {
  std::vector<OrderedRow> rows;
  for (const size_t i : members) {
    const BlockCandidate& candidate = candidates[i];
    rows.push_back({.predicted_tokens = candidate.predicted_tokens,
                    .pages = candidate.pages,
                    .index = candidate.index,
                    .choice = candidate.choice});
  }
  std::vector<size_t> ordered;
  for (const size_t row : LongestFirst(rows)) {
    ordered.push_back(members[row]);
  }
  members = std::move(ordered);
}

std::vector<size_t> InOrder(std::span<const BlockCandidate> candidates) {
  // Suspects, then priorities, then jobs.
  std::map<std::tuple<bool, int32_t, uint64_t>, std::vector<size_t>> jobs;
  for (size_t i = 0; i < candidates.size(); ++i) {
    const BlockCandidate& candidate = candidates[i];
    jobs[{!IsSuspect(candidate.attempt), -candidate.priority, candidate.job}].push_back(i);
  }
  // A job's turns come by its tags, whoever of its candidates takes them.
  std::vector<std::pair<std::tuple<bool, int32_t, double, uint64_t, size_t>, size_t>> turns;
  for (auto& [key, members] : jobs) {
    std::vector<double> tags;
    for (const size_t i : members) {
      tags.push_back(candidates[i].share_tag);
    }
    std::sort(tags.begin(), tags.end());
    OrderJob(candidates, members);
    const auto& [innocent, priority, job] = key;
    for (size_t i = 0; i < members.size(); ++i) {
      turns.push_back({{innocent, priority, tags[i], job, i}, members[i]});
    }
  }
  std::sort(turns.begin(), turns.end());
  std::vector<size_t> order;
  for (const auto& [turn, i] : turns) {
    order.push_back(i);
  }
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

std::vector<size_t> ChooseToSuspend(std::span<const BlockMember> held, int32_t priority,
                                    int64_t wanted) {
  std::vector<size_t> chosen;
  for (size_t i = 0; i < held.size(); ++i) {
    if (held[i].priority < priority) {
      chosen.push_back(i);
    }
  }
  const auto key = [&](size_t i) {
    return std::make_tuple(held[i].priority, held[i].computed_tokens, i);
  };
  std::sort(chosen.begin(), chosen.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
  chosen.resize(std::min(chosen.size(), static_cast<size_t>(std::max<int64_t>(wanted, 0))));
  return chosen;
}

}  // namespace nightshift
