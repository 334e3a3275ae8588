#include "server/security/quota.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kKeys[] =
    "active-jobs, queued-requests, stored-mib, submits-per-minute, streams, priority, weight";

absl::Status ReadCount(absl::string_view key, absl::string_view text, int64_t& count) {
  constexpr int64_t kMost = int64_t{1} << 40;
  if (!absl::SimpleAtoi(text, &count) || count < 1 || count > kMost) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a ", key, " that is no whole number from 1 to ", kMost));
  }
  return absl::OkStatus();
}

absl::Status ReadPriority(absl::string_view text, int32_t& priority) {
  constexpr absl::string_view kNames[] = {"low", "normal", "high"};
  const auto* found = std::find(std::begin(kNames), std::end(kNames), text);
  if (found == std::end(kNames)) {
    return absl::InvalidArgumentError("has a priority that is none of low, normal, high");
  }
  priority = static_cast<int32_t>(found - std::begin(kNames)) + 1;
  return absl::OkStatus();
}

absl::Status ReadWeight(absl::string_view text, double& weight) {
  constexpr double kLeast = 0.01;
  constexpr double kMost = 100;
  if (!absl::SimpleAtod(text, &weight) || !(weight >= kLeast && weight <= kMost)) {
    return absl::InvalidArgumentError(
        absl::StrCat("has a weight that is no number from ", kLeast, " to ", kMost));
  }
  return absl::OkStatus();
}

absl::Status ReadPair(absl::string_view key, absl::string_view value, Quota& quota) {
  for (const auto& [name, count] :
       {std::pair<absl::string_view, int64_t*>("active-jobs", &quota.active_jobs),
        {"queued-requests", &quota.queued_requests},
        {"stored-mib", &quota.stored_mib},
        {"submits-per-minute", &quota.submits_per_minute},
        {"streams", &quota.streams}}) {
    if (key == name) {
      return ReadCount(key, value, *count);
    }
  }
  if (key == "priority") {
    return ReadPriority(value, quota.priority);
  }
  if (key == "weight") {
    return ReadWeight(value, quota.weight);
  }
  return absl::InvalidArgumentError(absl::StrCat("has a key that is none of ", kKeys));
}

}  // namespace

absl::StatusOr<Quota> ParseQuota(const std::vector<absl::string_view>& words) {
  Quota quota;
  std::set<absl::string_view> keys;
  for (const absl::string_view word : words) {
    const std::pair<absl::string_view, absl::string_view> pair =
        absl::StrSplit(word, absl::MaxSplits('=', 1));
    RETURN_IF_ERROR(ReadPair(pair.first, pair.second, quota));
    if (!keys.insert(pair.first).second) {
      return absl::InvalidArgumentError(absl::StrCat("has ", pair.first, " twice"));
    }
  }
  return quota;
}

}  // namespace nightshift
