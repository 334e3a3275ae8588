// Retries: the patience with transient errors.
#pragma once

#include <functional>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace nightshift {

struct RetryOptions {
  // How long transient errors are retried without any progress in between.
  absl::Duration retry_for = absl::Seconds(15);
  // First pause between retries; doubles up to 25 times as much. The server's own wish for a longer
  // pause (RetryInfo) wins.
  absl::Duration first_backoff = absl::Milliseconds(200);
  // Told of each transient error before the pause that follows it.
  std::function<void(const absl::Status&)> on_retry = [](const absl::Status&) {};
};

// One call with all its attempts.
class Retries {
 public:
  // Both must outlive this; keep_waiting false ends a pause.
  Retries(const RetryOptions& options, const std::function<bool()>& keep_waiting);

  // Something moved forward: patience starts anew.
  void Progressed();

  // Pauses and returns OK when the caller should try again, else the error to return: `error`
  // itself when it is not transient or patience is over, CANCELLED by keep_waiting.
  absl::Status Next(const absl::Status& error);

 private:
  const RetryOptions& options_;
  const std::function<bool()>& keep_waiting_;
  absl::Time give_up_;
  absl::Duration backoff_;
};

}  // namespace nightshift
