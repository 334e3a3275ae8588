#include "server/scheduling/job_calendar.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/civil_time.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int kMinutesPerHour = 60;
constexpr int kMinutesPerDay = 24 * kMinutesPerHour;
constexpr size_t kMaxWindowBytes = 128;

absl::Status NoWindow(absl::string_view problem) {
  return absl::InvalidArgumentError(
      absl::StrCat(problem, "; a run window is HH:MM-HH:MM and, behind a space, a time zone"));
}

// "HH:MM" as a minute of the day, up to 24:00.
absl::StatusOr<int> ParseMinute(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ':');
  int hours = 0;
  int minutes = 0;
  const bool shaped = text.size() == 5 && parts.size() == 2 && parts[0].size() == 2 &&
                      absl::ascii_isdigit(static_cast<unsigned char>(text[0])) &&
                      absl::ascii_isdigit(static_cast<unsigned char>(text[3])) &&
                      absl::SimpleAtoi(parts[0], &hours) && absl::SimpleAtoi(parts[1], &minutes);
  const int minute = hours * kMinutesPerHour + minutes;
  if (!shaped || minutes >= kMinutesPerHour || minute > kMinutesPerDay) {
    return NoWindow("a time is not HH:MM");
  }
  return minute;
}

}  // namespace

absl::StatusOr<RunWindow> RunWindow::Parse(absl::string_view text) {
  if (text.size() > kMaxWindowBytes) {
    return NoWindow(absl::StrCat("it has ", text.size(), " bytes"));
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(text, absl::MaxSplits(' ', 1));
  const std::vector<absl::string_view> times = absl::StrSplit(parts.first, '-');
  if (times.size() != 2) {
    return NoWindow("it has no start and end");
  }
  ASSIGN_OR_RETURN(const int start, ParseMinute(times[0]));
  ASSIGN_OR_RETURN(const int end, ParseMinute(times[1]));
  if (start == kMinutesPerDay || start == end % kMinutesPerDay) {
    return NoWindow("it starts when it ends");
  }
  absl::TimeZone zone = absl::LocalTimeZone();
  if (!parts.second.empty() && !absl::LoadTimeZone(parts.second, &zone)) {
    return NoWindow("its time zone is not known here");
  }
  return RunWindow(start, end, zone);
}

bool RunWindow::IsOpen(absl::Time now) const {
  const absl::CivilSecond civil = absl::ToCivilSecond(now, zone_);
  const int minute = civil.hour() * kMinutesPerHour + civil.minute();
  return start_minute_ < end_minute_ ? minute >= start_minute_ && minute < end_minute_
                                     : minute >= start_minute_ || minute < end_minute_;
}

absl::Time RunWindow::NextChange(absl::Time now) const {
  const absl::CivilDay today(absl::ToCivilSecond(now, zone_));
  absl::Time next = absl::InfiniteFuture();
  // One day back: a clock that is set back shows an hour of the day again.
  for (int day = -1; day <= 2; ++day) {
    for (const int minute : {start_minute_, end_minute_}) {
      const absl::TimeZone::TimeInfo info =
          zone_.At(absl::CivilMinute(today + day) + minute);
      for (const absl::Time time : {info.pre, info.trans, info.post}) {
        next = time > now ? std::min(next, time) : next;
      }
    }
  }
  return next;
}

std::string RunWindow::ToString() const {
  return absl::StrFormat("%02d:%02d-%02d:%02d %s", start_minute_ / kMinutesPerHour,
                         start_minute_ % kMinutesPerHour, end_minute_ / kMinutesPerHour,
                         end_minute_ % kMinutesPerHour, zone_.name());
}

bool JobCalendar::MayRun(int64_t now_us) const {
  return now_us >= not_before_us &&
         (!window.has_value() || window->IsOpen(absl::FromUnixMicros(now_us)));
}

int64_t JobCalendar::NextChange(int64_t now_us) const {
  int64_t next_us = now_us < not_before_us ? not_before_us : kNeverUs;
  if (window.has_value()) {
    next_us = std::min(next_us,
                       absl::ToUnixMicros(window->NextChange(absl::FromUnixMicros(now_us))));
  }
  return next_us;
}

int64_t JobCalendar::NextRun(int64_t now_us) const {
  int64_t time_us = std::max(now_us, not_before_us);
  // A window opens within a few changes of a day.
  constexpr int kMostChanges = 16;
  for (int i = 0; i < kMostChanges && !MayRun(time_us); ++i) {
    time_us = NextChange(time_us);
  }
  return time_us;
}

absl::StatusOr<JobCalendar> MakeCalendar(const v1::JobSpec& spec) {
  JobCalendar calendar;
  if (spec.has_not_before()) {
    calendar.not_before_us =
        spec.not_before().seconds() * 1'000'000 + spec.not_before().nanos() / 1000;
  }
  if (!spec.run_window().empty()) {
    ASSIGN_OR_RETURN(calendar.window, RunWindow::Parse(spec.run_window()));
  }
  return calendar;
}

}  // namespace nightshift
