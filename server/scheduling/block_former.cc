#include "server/scheduling/block_former.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "kernels/base/checksum.h"

namespace nightshift {
namespace {

constexpr int64_t kFirstSuspects = 16;

bool IsSuspect(int32_t attempt) {
  return attempt > 1;
}

// How many leading pages all of `members` share.
size_t CommonPages(std::span<const BlockCandidate> candidates, const std::vector<size_t>& members) {
  const std::span<const uint64_t> first = candidates[members[0]].pages;
  size_t common = first.size();
  for (const size_t i : members) {
    const std::span<const uint64_t> pages = candidates[i].pages;
    common = std::min(common, pages.size());
    while (common > 0 && pages[common - 1] != first[common - 1]) {
      --common;
    }
  }
  return common;
}

// One job's candidates of one priority: groups of a prefix, the one with the longest member first.
void OrderJob(std::span<const BlockCandidate> candidates, std::vector<size_t>& members) {
  const size_t common = CommonPages(candidates, members);
  const auto group_of = [&](size_t i) -> std::optional<uint64_t> {
    const std::span<const uint64_t> pages = candidates[i].pages;
    return pages.size() > common ? std::optional(pages[common]) : std::nullopt;
  };
  std::map<uint64_t, int64_t> longest;
  for (const size_t i : members) {
    if (const auto group = group_of(i)) {
      int64_t& tokens = longest[*group];
      tokens = std::max(tokens, candidates[i].predicted_tokens);
    }
  }
  const auto key = [&](size_t i) {
    const BlockCandidate& candidate = candidates[i];
    const std::optional<uint64_t> group = group_of(i);
    return std::make_tuple(-(group ? longest[*group] : candidate.predicted_tokens),
                           group.value_or(0), -candidate.predicted_tokens, candidate.index,
                           candidate.choice);
  };
  std::sort(members.begin(), members.end(), [&](size_t a, size_t b) { return key(a) < key(b); });
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

std::vector<uint64_t> HashPages(std::span<const int32_t> prompt) {
  std::vector<uint64_t> hashes;
  constexpr size_t kPage = static_cast<size_t>(kPrefixPageTokens);
  for (size_t end = kPage; end <= prompt.size() && hashes.size() < kMaxPrefixPages; end += kPage) {
    const uint64_t page = Xxh3(std::as_bytes(prompt.subspan(end - kPage, kPage)));
    const std::array<uint64_t, 2> chain = {hashes.empty() ? 0 : hashes.back(), page};
    hashes.push_back(Xxh3(std::as_bytes(std::span(chain))));
  }
  return hashes;
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
