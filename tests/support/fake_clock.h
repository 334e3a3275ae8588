// A clock that tests move by hand, and waits by being there at once. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/base/clock.h"

namespace nightshift {

class FakeClock : public Clock {
 public:
  int64_t WallMicros() const override { return kWallOrigin + now_us_.load(); }
  int64_t MonotonicMicros() const override { return now_us_.load(); }
  void WaitUntil(int64_t monotonic_us) const override {
    int64_t now_us = now_us_.load();
    while (now_us < monotonic_us && !now_us_.compare_exchange_weak(now_us, monotonic_us)) {
    }
  }
  void Advance(int64_t micros) { now_us_ += micros; }

 private:
  static constexpr int64_t kWallOrigin = 1'700'000'000'000'000;
  mutable std::atomic<int64_t> now_us_{1};
};

}  // namespace nightshift
