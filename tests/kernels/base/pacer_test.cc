#include "kernels/base/pacer.h"

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"

namespace nightshift {
namespace {

// Waits take `late_us` longer than asked.
class LateClock : public FakeClock {
 public:
  void WaitUntil(int64_t monotonic_us) const override {
    ++waits_;
    FakeClock::WaitUntil(monotonic_us + late_us);
  }
  int waits() const { return waits_; }
  int64_t late_us = 0;

 private:
  mutable int waits_ = 0;
};

// One call with `units` of work that take `real_us`.
void Work(Pacer& pacer, LateClock& clock, double units, int64_t real_us) {
  const int64_t start_us = clock.MonotonicMicros();
  clock.Advance(real_us);
  pacer.Finish(units, start_us);
}

class PacerTest : public testing::Test {
 protected:
  int64_t elapsed_us() const { return clock_.MonotonicMicros() - start_us_; }

  LateClock clock_;
  const int64_t start_us_ = clock_.MonotonicMicros();
};

TEST_F(PacerTest, WorkTakesItsTimeAtTheRate) {
  Pacer pacer(2e6, clock_);  // two units a us
  Work(pacer, clock_, 6000, 100);
  EXPECT_EQ(elapsed_us(), 3000);
}

TEST_F(PacerTest, WorkThatTookLongerIsNotMadeUpFor) {
  Pacer pacer(1e6, clock_);
  Work(pacer, clock_, 1000, 5000);
  EXPECT_EQ(elapsed_us(), 5000);
  Work(pacer, clock_, 1000, 0);
  EXPECT_EQ(elapsed_us(), 6000);
}

TEST_F(PacerTest, IdleTimeIsNotMadeUpFor) {
  Pacer pacer(1e6, clock_);
  Work(pacer, clock_, 1000, 0);
  clock_.Advance(50'000);
  Work(pacer, clock_, 1000, 0);
  EXPECT_EQ(elapsed_us(), 52'000);
}

TEST_F(PacerTest, SmallWorksAddUpToTheirTimeWithFewWaits) {
  Pacer pacer(1e6, clock_);
  for (int i = 0; i < 10'000; ++i) {
    Work(pacer, clock_, 7.3, 1);
  }
  EXPECT_NEAR(static_cast<double>(elapsed_us()), 73'000.0, 200.0);
  EXPECT_LE(clock_.waits(), 73'000 / 200);
}

TEST_F(PacerTest, WhatATimerAddsIsTakenOffTheNextWaits) {
  clock_.late_us = 70;
  Pacer pacer(1e6, clock_);
  for (int i = 0; i < 100; ++i) {
    Work(pacer, clock_, 400, 10);
  }
  EXPECT_NEAR(static_cast<double>(elapsed_us()), 40'000.0, 200.0);
}

TEST_F(PacerTest, AStoppedProcessDoesNotRushAfterwards) {
  clock_.late_us = 1'000'000;
  Pacer pacer(1e6, clock_);
  Work(pacer, clock_, 1000, 0);
  clock_.late_us = 0;
  const int64_t resumed_us = clock_.MonotonicMicros();
  for (int i = 0; i < 100; ++i) {
    Work(pacer, clock_, 1000, 0);
  }
  EXPECT_EQ(clock_.MonotonicMicros() - resumed_us, 90'000);  // 10 ms of it are made up for
}

}  // namespace
}  // namespace nightshift
