#include "engine/policy/measurement.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

double SecondsSince(int64_t start_us, const Clock& clock) {
  return static_cast<double>(clock.MonotonicMicros() - start_us) * 1e-6;
}

// The rate of one turn.
absl::StatusOr<double> TakeTurn(const Measurement& measurement, double turn_seconds,
                                const Clock& clock) {
  const int64_t start_us = clock.MonotonicMicros();
  double amount = 0.0;
  double seconds = 0.0;
  do {
    const absl::StatusOr<double> done = measurement.work();
    if (!done.ok()) {
      return absl::Status(done.status().code(), absl::StrCat("measure ", measurement.name, ": ",
                                                             done.status().message()));
    }
    amount += *done;
    seconds = SecondsSince(start_us, clock);
  } while (seconds < turn_seconds);
  // The clock counts whole microseconds: work that took less took less than one.
  return amount / std::max(seconds, 1e-6);
}

// The middle one, the upper of two; 0 of none.
double Median(std::vector<double>& values) {
  if (values.empty()) {
    return 0.0;
  }
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

absl::StatusOr<MeasureCounts> MeasureInTurns(std::span<const Measurement> measurements,
                                             const MeasureOptions& options, const Clock& clock) {
  const int64_t start_us = clock.MonotonicMicros();
  std::vector<std::vector<double>> rates(measurements.size());
  MeasureCounts counts;
  double round_seconds = 0.0;
  while (counts.rounds == 0 || (counts.rounds < options.most_rounds &&
                                counts.seconds + round_seconds <= options.most_seconds)) {
    for (size_t i = 0; i < measurements.size(); ++i) {
      ASSIGN_OR_RETURN(const double rate, TakeTurn(measurements[i], options.turn_seconds, clock));
      rates[i].push_back(rate);
    }
    const double seconds = SecondsSince(start_us, clock);
    round_seconds = seconds - counts.seconds;
    counts.seconds = seconds;
    ++counts.rounds;
  }
  std::vector<double> spreads;
  for (size_t i = 0; i < measurements.size(); ++i) {
    const double median = Median(rates[i]);
    const auto [least, largest] = std::minmax_element(rates[i].begin(), rates[i].end());
    spreads.push_back(median > 0.0 ? (*largest - *least) / median : 0.0);
    measurements[i].keep(median, spreads.back());
  }
  counts.median_spread = Median(spreads);
  return counts;
}

}  // namespace nightshift
