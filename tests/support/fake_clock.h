// A clock that tests move by hand. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>

#include "kernels/base/clock.h"

namespace nightshift {

class FakeClock : public Clock {
 public:
  int64_t WallMicros() const override { return kWallOrigin + now_us_.load(); }
  int64_t MonotonicMicros() const override { return now_us_.load(); }
  void Advance(int64_t micros) { now_us_ += micros; }

 private:
  static constexpr int64_t kWallOrigin = 1'700'000'000'000'000;
  std::atomic<int64_t> now_us_{1};
};

}  // namespace nightshift
