// When a job may run: not before a time, and only in some hours of the day. Pure, but for the
// machine's time zone database.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

inline constexpr int64_t kNeverUs = INT64_MAX;

// The hours of each day in which a job may run, by the clock on the wall of a time zone. Over
// midnight when the end is before the start. A change of daylight saving time makes a night shorter
// or longer, as it does for people.
class RunWindow {
 public:
  // "22:00-06:00" or "22:00-06:00 Europe/Berlin"; without a zone, the machine's own. "24:00" may
  // end it. INVALID_ARGUMENT saying what is wrong.
  static absl::StatusOr<RunWindow> Parse(absl::string_view text);

  bool IsOpen(absl::Time now) const;
  // A time after `now` up to which IsOpen stays as it is.
  absl::Time NextChange(absl::Time now) const;
  // With its zone.
  std::string ToString() const;

 private:
  RunWindow(int start_minute, int end_minute, absl::TimeZone zone)
      : start_minute_(start_minute), end_minute_(end_minute), zone_(zone) {}

  int start_minute_;  // of the day
  int end_minute_;
  absl::TimeZone zone_;
};

// Times are of the wall clock, microseconds since 1970 UTC.
struct JobCalendar {
  int64_t not_before_us = 0;
  std::optional<RunWindow> window;

  bool MayRun(int64_t now_us) const;
  // A time after now_us up to which MayRun stays as it is; kNeverUs when it stays so for ever.
  int64_t NextChange(int64_t now_us) const;
  // When it may run, now or later.
  int64_t NextRun(int64_t now_us) const;
};

// INVALID_ARGUMENT for a run window that cannot be read.
absl::StatusOr<JobCalendar> MakeCalendar(const v1::JobSpec& spec);

}  // namespace nightshift
