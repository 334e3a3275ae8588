// InputTroubles: when rows are tried again whose input could not be read, and when no more.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"

namespace nightshift {

// A row is read so often. The waits between double up to kMostIntervals of the first: with one of a
// second that is a minute and a half, in which a disk that comes back does.
inline constexpr int kMaxInputAttempts = 8;
inline constexpr int64_t kMostIntervals = 30;

// In place of a row's index: of a job's rows together.
inline constexpr int64_t kAllRows = -1;

// Knows each row that could not be read: at most those that its owner has in hand. Times are of the
// monotonic clock. One thread.
class InputTroubles {
 public:
  explicit InputTroubles(int64_t interval_us) : interval_us_(interval_us) {}

  // Of a row that could not be read now (UNAVAILABLE): the same while it is to be read again, after
  // the last attempt the DATA_LOSS that it is, with their number. Logs a line a round.
  absl::Status Judge(const std::string& job_uid, int64_t index, const absl::Status& status,
                     int64_t now_us);
  void Succeeded(const std::string& job_uid, int64_t index);
  // Rows of the job are not read before; 0: they may be.
  int64_t WaitUntil(const std::string& job_uid, int64_t now_us) const;
  // When the first wait ends after `now_us`; INT64_MAX for never.
  int64_t NextRetry(int64_t now_us) const;
  // The other jobs are gone.
  void Retain(const std::set<std::string>& job_uids);

 private:
  struct Row {
    int attempts = 0;
    int64_t since_us = 0;
  };
  struct Job {
    int64_t retry_us = 0;
    std::map<int64_t, Row> rows;
  };

  const int64_t interval_us_;
  std::map<std::string, Job> jobs_;
};

}  // namespace nightshift
