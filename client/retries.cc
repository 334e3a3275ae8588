#include "client/retries.h"

#include <algorithm>

#include "absl/time/clock.h"

#include "client/await.h"
#include "client/rpc_error.h"

namespace nightshift {
namespace {

constexpr int kMaxBackoffFactor = 25;

}  // namespace

Retries::Retries(const RetryOptions& options, const std::function<bool()>& keep_waiting)
    : options_(options), keep_waiting_(keep_waiting) {
  Progressed();
}

void Retries::Progressed() {
  give_up_ = absl::Now() + options_.retry_for;
  backoff_ = options_.first_backoff;
}

absl::Status Retries::Next(const absl::Status& error) {
  if (!IsTransient(error) || absl::Now() >= give_up_) {
    return error;
  }
  options_.on_retry(error);
  if (!Pause(std::max(backoff_, DetailsOf(error).retry_delay), keep_waiting_)) {
    return absl::CancelledError("wait for the daemon: interrupted");
  }
  backoff_ = std::min(backoff_ * 2, options_.first_backoff * kMaxBackoffFactor);
  return absl::OkStatus();
}

}  // namespace nightshift
