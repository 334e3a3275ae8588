#include "kernels/base/pacer.h"

#include <algorithm>
#include <cmath>

#include "kernels/base/check.h"

namespace nightshift {
namespace {

constexpr double kLeastWaitUs = 200.0;
// A process that was stopped while it waited does not rush for longer than this.
constexpr double kMostLateUs = 10'000.0;

}  // namespace

Pacer::Pacer(double units_per_s, const Clock& clock)
    : us_per_unit_(1e6 / units_per_s), clock_(clock) {
  CHECK(units_per_s > 0.0);
}

void Pacer::Finish(double units, int64_t start_us) {
  const int64_t now_us = clock_.MonotonicMicros();
  owed_us_ += std::max(0.0, units * us_per_unit_ - static_cast<double>(now_us - start_us));
  if (owed_us_ < kLeastWaitUs) {
    return;
  }
  clock_.WaitUntil(now_us + std::llround(owed_us_));
  owed_us_ -= static_cast<double>(clock_.MonotonicMicros() - now_us);
  owed_us_ = std::max(owed_us_, -kMostLateUs);
}

}  // namespace nightshift
