#include "client/progress_display.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"

namespace nightshift {
namespace {

constexpr absl::Duration kLiveInterval = absl::Seconds(1);
constexpr absl::Duration kLineInterval = absl::Seconds(30);

absl::Duration IntervalOf(const ConsoleOptions& options) {
  if (options.quiet) {
    return absl::InfiniteDuration();
  }
  return options.live ? kLiveInterval : kLineInterval;
}

}  // namespace

ProgressDisplay::ProgressDisplay(Session& session, std::string job)
    : session_(session),
      job_(std::move(job)),
      interval_(IntervalOf(session.console().options())),
      // A terminal shows something at once; a log need not say what has just begun.
      next_(absl::Now() + (session.console().options().live ? absl::ZeroDuration() : interval_)) {}

void ProgressDisplay::Tick() {
  if (absl::Now() < next_) {
    return;
  }
  const absl::StatusOr<v1::Job> job = session_.client().PeekJob(job_);
  next_ = absl::Now() + interval_;
  if (job.ok()) {
    Show(*job);
  }
}

void ProgressDisplay::Show(const v1::Job& job) {
  const bool live = session_.console().options().live;
  const std::string text = ProgressText(estimate_.Estimate(job, absl::Now()), live);
  if (live) {
    session_.console().ShowLive(text);
  } else {
    session_.console().Note(absl::StrCat(job_, ": ", text));
  }
}

}  // namespace nightshift
