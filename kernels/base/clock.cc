#include "kernels/base/clock.h"

#include <chrono>
#include <thread>

namespace nightshift {

int64_t RealClock::WallMicros() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

int64_t RealClock::MonotonicMicros() const {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void RealClock::WaitUntil(int64_t monotonic_us) const {
  std::this_thread::sleep_until(
      std::chrono::steady_clock::time_point(std::chrono::microseconds(monotonic_us)));
}

}  // namespace nightshift
