// Time as a dependency, so that tests move it by hand.
#pragma once

#include <cstdint>

namespace nightshift {

// A source of time. Thread-safe. RealClock in the product, FakeClock in tests.
class Clock {
 public:
  virtual ~Clock() = default;
  // Wall clock, microseconds since 1970 UTC. May jump; only for stamps and deadlines given by people.
  virtual int64_t WallMicros() const = 0;
  // Monotonic, microseconds from an arbitrary origin.
  virtual int64_t MonotonicMicros() const = 0;
  // Leaves the core to others until MonotonicMicros() is at least `monotonic_us`; returns at once
  // when it is already.
  virtual void WaitUntil(int64_t monotonic_us) const = 0;
};

class RealClock : public Clock {
 public:
  int64_t WallMicros() const override;
  int64_t MonotonicMicros() const override;
  void WaitUntil(int64_t monotonic_us) const override;
};

}  // namespace nightshift
