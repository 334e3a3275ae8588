#include "kernels/base/log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/base/clock.h"

namespace nightshift {
namespace {

TEST(LogTest, WritesOneLineWithLevelTimeAndText) {
  testing::internal::CaptureStderr();
  LOG(WARNING) << "pool_full asked_bytes=" << 4096;
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::MatchesRegex("W ....-..-..T..:..:......Z pool_full asked_bytes=4096\n"));
}

TEST(LogTest, TextFromElsewhereForgesNoLineAndMovesNoCursor) {
  testing::internal::CaptureStderr();
  LOG(INFO) << "name=a\x1b[2J\nI 2025 forged\x7f\xc2\x9b \xc3\xa9";
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::EndsWith(R"(Z name=a\x1b[2J\x0aI 2025 forged\x7f\x9b )"
                                "\xc3\xa9\n"));
}

TEST(RealClockTest, MonotonicTimeNeverGoesBack) {
  const RealClock clock;
  int64_t last = clock.MonotonicMicros();
  for (int i = 0; i < 1000; ++i) {
    const int64_t current = clock.MonotonicMicros();
    ASSERT_GE(current, last);
    last = current;
  }
}

TEST(RealClockTest, WallTimeCountsFromTheEpoch) {
  constexpr int64_t kStartOf2020 = int64_t{1577836800} * 1000000;
  EXPECT_GT(RealClock().WallMicros(), kStartOf2020);
}

}  // namespace
}  // namespace nightshift
