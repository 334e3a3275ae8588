// Measurement: how fast a machine does something, told from short turns that are spread over
// minutes.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"

namespace nightshift {

struct Measurement {
  std::string name;  // for messages: "matmul of 64 rows, bf16"
  // Does some work, a few ms of it, and says how much (bytes, operations).
  std::function<absl::StatusOr<double>()> work;
  // Gets the median of the turns' rates, a second, and (largest - least) / median; 0 with one turn.
  std::function<void(double rate, double spread)> keep;
};

struct MeasureOptions {
  double turn_seconds = 0.03;  // a turn repeats its work for so long, at least once
  int most_rounds = 7;         // a round is a turn of each measurement
  double most_seconds = 80.0;  // no round begins that would end later, but the first
};

struct MeasureCounts {
  int rounds = 0;
  double seconds = 0.0;
  double median_spread = 0.0;  // of all measurements: how restless the machine was
};

// Runs the measurements in turns, so that what else happens on the machine meets all of them and no
// measurement for all of its turns; then keeps the results, in order.
// Errors: of a work, with the measurement's name; what was measured is lost.
absl::StatusOr<MeasureCounts> MeasureInTurns(std::span<const Measurement> measurements,
                                             const MeasureOptions& options, const Clock& clock);

}  // namespace nightshift
