#include "kernels/base/clock.h"

#include <gtest/gtest.h>

namespace nightshift {
namespace {

TEST(ClockTest, WaitUntilReturnsWhenTheTimeIsThere) {
  const RealClock clock;
  const int64_t until_us = clock.MonotonicMicros() + 3000;
  clock.WaitUntil(until_us);
  EXPECT_GE(clock.MonotonicMicros(), until_us);
}

TEST(ClockTest, WaitUntilATimeThatIsGoneReturnsAtOnce) {
  const RealClock clock;
  clock.WaitUntil(clock.MonotonicMicros() - 1'000'000);
  clock.WaitUntil(0);
  EXPECT_GT(clock.MonotonicMicros(), 0);
}

}  // namespace
}  // namespace nightshift
