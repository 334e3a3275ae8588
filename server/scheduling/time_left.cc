#include "server/scheduling/time_left.h"

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace nightshift {
namespace {

// The plan's word counts as much as so many predicted seconds of sweeps.
constexpr double kPriorSeconds = 2.0;
// Sweeps before about so many predicted seconds are forgotten.
constexpr double kMemorySeconds = 300.0;
constexpr double kLeastUncertainty = 0.1;
constexpr double kFirstUncertainty = 0.25;  // beside the least

// When each job ends, of what each takes alone.
std::vector<double> WithOthers(std::span<const JobLeft> jobs, const std::vector<double>& alone) {
  std::vector<size_t> order(jobs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(-jobs[a].priority, alone[a]) < std::pair(-jobs[b].priority, alone[b]);
  });
  std::vector<double> ends(jobs.size());
  double before = 0.0;  // of higher priorities
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin;
    while (end < order.size() && jobs[order[end]].priority == jobs[order[begin]].priority) {
      ++end;
    }
    double shorter = 0.0;  // of those that end sooner, all
    for (size_t i = begin; i < end; ++i) {
      const double seconds = alone[order[i]];
      ends[order[i]] = before + shorter + static_cast<double>(end - i) * seconds;
      shorter += seconds;
    }
    before += shorter;
    begin = end;
  }
  return ends;
}

}  // namespace

void Pace::Add(double predicted_seconds, double observed_seconds) {
  predicted_seconds_ += predicted_seconds;
  observed_seconds_ += observed_seconds;
  if (predicted_seconds_ > kMemorySeconds) {
    observed_seconds_ *= kMemorySeconds / predicted_seconds_;
    predicted_seconds_ = kMemorySeconds;
  }
}

double Pace::ratio() const {
  return (kPriorSeconds + observed_seconds_) / (kPriorSeconds + predicted_seconds_);
}

double Pace::uncertainty() const {
  return kLeastUncertainty +
         kFirstUncertainty * kPriorSeconds / (kPriorSeconds + predicted_seconds_);
}

std::map<std::string, TimeLeft> TimesLeft(std::span<const JobLeft> jobs, const TokenCosts& costs,
                                          double ratio, double uncertainty) {
  const auto alone = [&](const JobLeft& job, double output_tokens) {
    return ratio *
           (job.prompt_tokens * costs.prompt_seconds + output_tokens * costs.output_seconds);
  };
  // Of each job alone: likely, and at the least.
  std::vector<double> likely;
  std::vector<double> least;
  for (const JobLeft& job : jobs) {
    likely.push_back(alone(job, job.output_tokens));
    least.push_back(alone(job, job.least_output_tokens));
  }
  const std::vector<double> seconds = WithOthers(jobs, likely);
  const std::vector<double> least_seconds = WithOthers(jobs, least);
  std::map<std::string, TimeLeft> times;
  for (size_t i = 0; i < jobs.size(); ++i) {
    times[jobs[i].id] = {.seconds = seconds[i],
                         .least_seconds = least_seconds[i] / (1.0 + uncertainty),
                         .most_seconds = seconds[i] * (1.0 + uncertainty)};
  }
  return times;
}

}  // namespace nightshift
