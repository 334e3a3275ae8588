// Pacer: makes work take the time that slower hardware would.
#pragma once

#include <cstdint>

#include "kernels/base/clock.h"

namespace nightshift {

// Used by one thread at a time. The clock must outlive it.
class Pacer {
 public:
  // units_per_s > 0: bytes or floating-point operations.
  Pacer(double units_per_s, const Clock& clock);

  // Call at the end of `units` of work that began at `start_us` of the clock's monotonic time:
  // returns when they have taken their time at the rate. Work that took longer is not made up for.
  // Over many calls the time is right; one call may return up to 200 us early, because short waits
  // cost more than they last, or late by what the machine's timer adds, which later calls make up
  // for.
  void Finish(double units, int64_t start_us);

 private:
  const double us_per_unit_;
  const Clock& clock_;
  double owed_us_ = 0.0;  // still to be waited; negative when waits took longer than asked
};

}  // namespace nightshift
