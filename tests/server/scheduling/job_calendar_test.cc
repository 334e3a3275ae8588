#include "server/scheduling/job_calendar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

RunWindow Window(const std::string& text) {
  auto window = RunWindow::Parse(text);
  EXPECT_OK(window);
  return *window;
}

// RFC 3339, as "2025-06-01T23:00:00Z".
absl::Time At(const std::string& text) {
  absl::Time time;
  std::string error;
  EXPECT_TRUE(absl::ParseTime(absl::RFC3339_full, text, &time, &error)) << error;
  return time;
}

TEST(JobCalendarTest, AWindowOverMidnightIsOpenAtNight) {
  const RunWindow window = Window("22:00-06:00 UTC");
  EXPECT_FALSE(window.IsOpen(At("2025-06-01T21:59:59Z")));
  EXPECT_TRUE(window.IsOpen(At("2025-06-01T22:00:00Z")));
  EXPECT_TRUE(window.IsOpen(At("2025-06-02T05:59:59Z")));
  EXPECT_FALSE(window.IsOpen(At("2025-06-02T06:00:00Z")));
  EXPECT_EQ(window.NextChange(At("2025-06-01T21:00:00Z")), At("2025-06-01T22:00:00Z"));
  EXPECT_EQ(window.NextChange(At("2025-06-01T22:00:00Z")), At("2025-06-02T06:00:00Z"));
}

TEST(JobCalendarTest, AWindowInTheDayIsOpenAtDay) {
  const RunWindow window = Window("12:30-24:00 UTC");
  EXPECT_FALSE(window.IsOpen(At("2025-06-01T12:29:59Z")));
  EXPECT_TRUE(window.IsOpen(At("2025-06-01T23:59:59Z")));
  EXPECT_FALSE(window.IsOpen(At("2025-06-02T00:00:00Z")));
}

TEST(JobCalendarTest, TheClockIsThatOfTheZone) {
  const RunWindow window = Window("22:00-06:00 Europe/Berlin");
  EXPECT_TRUE(window.IsOpen(At("2025-01-10T21:00:00Z")));
  EXPECT_FALSE(window.IsOpen(At("2025-01-10T20:59:00Z")));
  EXPECT_TRUE(window.IsOpen(At("2025-07-10T20:00:00Z"))) << "summer time";
  EXPECT_EQ(window.ToString(), "22:00-06:00 Europe/Berlin");
}

// In Berlin clocks go from 02:00 to 03:00 on 2025-03-30 and from 03:00 to 02:00 on 2025-10-26, both
// at 01:00 UTC. However the night is cut, waking at NextChange sees each change.
TEST(JobCalendarTest, NoChangeIsMissedWhenClocksAreSet) {
  for (const std::string text : {"22:00-02:30", "02:30-06:00", "02:15-02:45", "23:00-03:00"}) {
    const RunWindow window = Window(absl::StrCat(text, " Europe/Berlin"));
    for (const std::string day : {"2025-03-29", "2025-10-25"}) {
      absl::Time expected_until = At(absl::StrCat(day, "T18:00:00Z"));
      for (int minute = 0; minute < 24 * 60; ++minute) {
        const absl::Time now = At(absl::StrCat(day, "T18:00:00Z")) + absl::Minutes(minute);
        if (now >= expected_until) {
          expected_until = window.NextChange(now);
          ASSERT_GT(expected_until, now);
        }
        ASSERT_EQ(window.IsOpen(now), window.IsOpen(now + absl::Seconds(59)));
        if (now + absl::Minutes(1) < expected_until) {
          ASSERT_EQ(window.IsOpen(now), window.IsOpen(now + absl::Minutes(1)))
              << text << " " << absl::FormatTime(now);
        }
      }
    }
  }
}

TEST(JobCalendarTest, RefusesWhatIsNoWindow) {
  for (const char* text : {"", "22:00", "22-06", "22:00-25:00", "22:60-06:00", "2:00-06:00",
                           "22:00-22:00", "00:00-24:00", "24:00-06:00", "+1:00-02:00",
                           "22:00-06:00 Mars/Olympus", "22:00-06:00-07:00", "aa:bb-cc:dd"}) {
    EXPECT_THAT(RunWindow::Parse(text), StatusIs(absl::StatusCode::kInvalidArgument, "run window"))
        << text;
  }
  EXPECT_THAT(RunWindow::Parse("22:00-06:00 " + std::string(1000, 'x')),
              StatusIs(absl::StatusCode::kInvalidArgument, "bytes"));
}

TEST(JobCalendarTest, AJobWithoutTimesMayAlwaysRun) {
  const JobCalendar calendar;
  EXPECT_TRUE(calendar.MayRun(0));
  EXPECT_EQ(calendar.NextChange(0), kNeverUs);
}

TEST(JobCalendarTest, AJobWaitsForItsTimeAndThenForItsWindow) {
  v1::JobSpec spec;
  spec.set_run_window("22:00-06:00 UTC");
  spec.mutable_not_before()->set_seconds(absl::ToUnixSeconds(At("2025-06-02T12:00:00Z")));
  ASSERT_OK_AND_ASSIGN(const JobCalendar calendar, MakeCalendar(spec));
  const int64_t night_us = absl::ToUnixMicros(At("2025-06-01T23:00:00Z"));
  EXPECT_FALSE(calendar.MayRun(night_us)) << "in its window, before its time";
  const int64_t opens_us = absl::ToUnixMicros(At("2025-06-02T22:00:00Z"));
  EXPECT_EQ(calendar.NextRun(night_us), opens_us);
  EXPECT_TRUE(calendar.MayRun(opens_us));
  EXPECT_EQ(calendar.NextRun(opens_us + 5), opens_us + 5);
}

TEST(JobCalendarTest, TellsAWindowThatCannotBeRead) {
  v1::JobSpec spec;
  spec.set_run_window("at night");
  EXPECT_THAT(MakeCalendar(spec), StatusIs(absl::StatusCode::kInvalidArgument, "run window"));
}

}  // namespace
}  // namespace nightshift
