#include "engine/policy/profile_refinement.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

bool IsTime(double seconds) {
  return std::isfinite(seconds) && seconds > 0.0;
}

}  // namespace

void ProfileRefinement::Observe(LaneId lane, double predicted_seconds, double observed_seconds) {
  if (!IsTime(predicted_seconds) || !IsTime(observed_seconds)) {
    return;
  }
  // Two logarithms, because the ratio of two times may overflow.
  const double most = std::log(kMostRatio);
  std::vector<double>& recent = lanes_[Index(lane)];
  recent.push_back(
      std::clamp(std::log(observed_seconds) - std::log(predicted_seconds), -most, most));
  if (recent.size() > kRecent) {
    recent.erase(recent.begin());
  }
}

double ProfileRefinement::Factor(LaneId lane) const {
  const std::vector<double>& recent = lanes_[Index(lane)];
  return recent.size() < kLeast
             ? 1.0
             : std::clamp(std::exp(Median(recent)), 1.0 / kMostFactor, kMostFactor);
}

absl::Status ProfileRefinement::Restore(LaneId lane, double log_ratio) {
  std::vector<double>& recent = lanes_[Index(lane)];
  const double most = std::log(kMostRatio);
  if (recent.size() == kRecent) {
    return absl::InvalidArgumentError(
        absl::StrCat("refinement of lane ", LaneName(lane), ": more than ", kRecent, " ratios"));
  }
  if (!(log_ratio >= -most && log_ratio <= most)) {
    return absl::InvalidArgumentError(absl::StrCat("refinement of lane ", LaneName(lane), ": ",
                                                   log_ratio, " is not within ", most, " of 0"));
  }
  recent.push_back(log_ratio);
  return absl::OkStatus();
}

bool ProfileRefinement::empty() const {
  return std::all_of(lanes_.begin(), lanes_.end(),
                     [](const std::vector<double>& recent) { return recent.empty(); });
}

}  // namespace nightshift
