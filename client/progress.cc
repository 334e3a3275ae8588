#include "client/progress.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "client/job_text.h"

namespace nightshift {
namespace {

constexpr int64_t kBarCells = 24;

std::string Bar(int64_t done, int64_t total) {
  const int64_t filled = total > 0 ? done * kBarCells / total : 0;
  return absl::StrCat("[", std::string(static_cast<size_t>(filled), '#'),
                      std::string(static_cast<size_t>(kBarCells - filled), '.'), "] ");
}

// A rate that a person can read: whole numbers from 10 on.
std::string Rate(double tokens_per_second) {
  return tokens_per_second >= 10 ? GroupedNumber(std::llround(tokens_per_second))
                                 : absl::StrFormat("%.1f", tokens_per_second);
}

// ", ETA 3m20s (3m05s to 4m10s)"; of what may end at any moment only the latest time is of use.
std::string EtaText(const v1::Progress& progress) {
  if (!progress.has_eta()) {
    return "";
  }
  const auto text = [](const google::protobuf::Duration& left) {
    return ShortDuration(absl::Seconds(left.seconds()));
  };
  if (progress.eta().seconds() <= 0) {
    return progress.eta_high().seconds() > 0
               ? absl::StrCat(", ETA under ", text(progress.eta_high()))
               : "";
  }
  std::string eta = absl::StrCat(", ETA ", text(progress.eta()));
  if (progress.has_eta_low() && progress.has_eta_high()) {
    absl::StrAppend(&eta, " (", text(progress.eta_low()), " to ", text(progress.eta_high()), ")");
  }
  return eta;
}

}  // namespace

int64_t DoneOf(const v1::JobCounts& counts) {
  return counts.succeeded() + counts.failed() + counts.cancelled() + counts.expired();
}

std::string ProgressText(const v1::Job& job, bool with_bar) {
  const v1::JobCounts& counts = job.counts();
  const int64_t done = DoneOf(counts);
  std::string text = absl::StrCat(with_bar ? Bar(done, counts.total()) : "", GroupedNumber(done),
                                  "/", GroupedNumber(counts.total()));
  if (counts.failed() > 0) {
    absl::StrAppend(&text, ", ", GroupedNumber(counts.failed()), " failed");
  }
  if (job.state() != v1::JOB_STATE_RUNNING) {
    absl::StrAppend(&text, ", ", StateText(job.state()));
    if (job.state() == v1::JOB_STATE_VALIDATING && counts.total() > 0) {
      absl::StrAppend(&text, " ", 100 * job.progress().checked_requests() / counts.total(), " %");
    }
  }
  if (const std::string waits = WaitsForText(job); !waits.empty()) {
    absl::StrAppend(&text, ", waits for ", waits);
  }
  if (job.state() != v1::JOB_STATE_RUNNING) {
    return text;
  }
  const v1::Progress& progress = job.progress();
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&text, ", ", Rate(progress.tokens_per_second()), " tokens/s");
  }
  absl::StrAppend(&text, EtaText(progress));
  return text;
}

std::string ShortDuration(absl::Duration duration) {
  const int64_t seconds = std::max<int64_t>(0, absl::ToInt64Seconds(duration));
  if (seconds < 60) {
    return seconds == 0 && duration > absl::ZeroDuration() ? "<1s" : absl::StrCat(seconds, "s");
  }
  if (seconds < 3600) {
    return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  }
  if (seconds < 48 * 3600) {
    return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  }
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds / 3600 % 24);
}

std::string GroupedNumber(int64_t number) {
  const std::string digits = absl::StrCat(number);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool after_digit = i > 0 && digits[i - 1] != '-';
    if (after_digit && (digits.size() - i) % 3 == 0) {
      text.push_back(',');
    }
    text.push_back(digits[i]);
  }
  return text;
}

std::string ByteSize(int64_t bytes) {
  if (bytes < 1024) {
    return absl::StrCat(bytes, " B");
  }
  constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  double size = static_cast<double>(bytes) / 1024;
  size_t unit = 0;
  while (size >= 1024 && unit + 1 < std::size(kUnits)) {
    size /= 1024;
    ++unit;
  }
  return absl::StrFormat("%.1f %s", size, kUnits[unit]);
}

v1::Job ProgressEstimate::Estimate(v1::Job job, absl::Time now) {
  const int64_t done = DoneOf(job.counts());
  if (job.state() != v1::JOB_STATE_RUNNING) {
    return job;
  }
  if (!start_) {
    start_ = now;
    start_done_ = done;
    start_tokens_ = job.tokens().output();
    return job;
  }
  const double elapsed_s = absl::ToDoubleSeconds(now - *start_);
  v1::Progress& progress = *job.mutable_progress();
  const int64_t new_tokens = job.tokens().output() - start_tokens_;
  if (progress.tokens_per_second() <= 0 && elapsed_s > 0 && new_tokens > 0) {
    progress.set_tokens_per_second(static_cast<double>(new_tokens) / elapsed_s);
  }
  const int64_t new_done = done - start_done_;
  if (!progress.has_eta() && new_done > 0) {
    const double left_s = elapsed_s / static_cast<double>(new_done) *
                          static_cast<double>(job.counts().total() - done);
    progress.mutable_eta()->set_seconds(std::llround(left_s));
  }
  return job;
}

}  // namespace nightshift
