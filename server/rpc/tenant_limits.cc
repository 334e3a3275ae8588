#include "server/rpc/tenant_limits.h"

#include <algorithm>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "kernels/base/status_macros.h"
#include "server/input/rpc_error.h"

namespace nightshift {
namespace {

constexpr double kMicrosPerMinute = 60e6;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kShortDelayMs = 2000;  // for what ends by itself soon
constexpr int64_t kJobDelayMs = 60'000;  // for jobs that must end, or be deleted

struct Refusal {
  const char* quota;  // its key in the access file
  int64_t limit;
  std::string what;  // "has 10 active jobs"
  const char* next_step;
  int64_t delay_ms;
};

absl::Status Exceeded(const std::string& tenant, const Refusal& refusal) {
  const std::string message =
      absl::StrCat("tenant ", tenant, " ", refusal.what, ", its quota ", refusal.quota, " is ",
                   refusal.limit, "; ", refusal.next_step);
  return WithRetryDelay(WithQuotaFailure(MakeError(absl::StatusCode::kResourceExhausted,
                                                   reason::kQuotaExceeded, message,
                                                   {{"tenant", tenant},
                                                    {"quota", refusal.quota},
                                                    {"limit", absl::StrCat(refusal.limit)}}),
                                         absl::StrCat("tenant:", tenant), message),
                        refusal.delay_ms);
}

absl::Status TooManyUploads(int64_t limit) {
  return WithRetryDelay(
      MakeError(absl::StatusCode::kResourceExhausted, reason::kBacklogFull,
                absl::StrCat(limit, " uploads are in progress, the daemon's limit; come again"),
                {{"limit", absl::StrCat(limit)}}),
      kShortDelayMs);
}

}  // namespace

TenantLimits::Place& TenantLimits::Place::operator=(Place&& other) noexcept {
  GiveBack();
  taken_ = std::exchange(other.taken_, nullptr);
  owner_ = other.owner_;
  return *this;
}

void TenantLimits::Place::GiveBack() {
  if (taken_ != nullptr) {
    MutexLock lock(owner_->mutex_);
    --*std::exchange(taken_, nullptr);
  }
}

Quota TenantLimits::QuotaOf(const std::string& tenant) const {
  const std::shared_ptr<const AccessList> list = access_.current();
  return list == nullptr ? Quota() : list->QuotaOf(tenant);
}

absl::Status TenantLimits::CountSubmit(const std::string& tenant) {
  const int64_t most = QuotaOf(tenant).submits_per_minute;
  if (most == kNoQuota) {
    return absl::OkStatus();
  }
  const int64_t now_us = clock_.MonotonicMicros();
  const double per_us = static_cast<double>(most) / kMicrosPerMinute;
  MutexLock lock(mutex_);
  Taken& taken = taken_[tenant];
  const auto passed_us = static_cast<double>(now_us - taken.submits_at_us);
  const double filled = std::max(0.0, taken.submits - passed_us * per_us);
  if (filled + 1 > static_cast<double>(most)) {
    const double wait_us = (filled + 1 - static_cast<double>(most)) / per_us;
    return Exceeded(tenant, {.quota = "submits-per-minute",
                             .limit = most,
                             .what = "submits too fast",
                             .next_step = "submit more slowly, or more requests in a job",
                             .delay_ms = static_cast<int64_t>(std::ceil(wait_us / 1000))});
  }
  taken.submits = filled + 1;
  taken.submits_at_us = now_us;
  return absl::OkStatus();
}

absl::Status TenantLimits::CheckPriority(const std::string& tenant, int32_t priority) const {
  const Quota quota = QuotaOf(tenant);
  if (priority <= quota.priority) {
    return absl::OkStatus();
  }
  return Exceeded(tenant, {.quota = "priority",
                           .limit = quota.priority,
                           .what = absl::StrCat("asks for priority ", priority),
                           .next_step = "submit with a lower one (1 low, 2 normal, 3 high)",
                           .delay_ms = kJobDelayMs});
}

absl::StatusOr<TenantLimits::Place> TenantLimits::OpenStream(const std::string& tenant) {
  const int64_t most = QuotaOf(tenant).streams;
  MutexLock lock(mutex_);
  Taken& taken = taken_[tenant];
  if (taken.streams >= most) {
    return Exceeded(tenant, {.quota = "streams",
                             .limit = most,
                             .what = absl::StrCat("has ", taken.streams, " calls that last"),
                             .next_step = "end one that uploads, waits or reads results",
                             .delay_ms = kShortDelayMs});
  }
  ++taken.streams;
  return Place(taken.streams, *this);
}

absl::StatusOr<TenantLimits::Place> TenantLimits::OpenUpload(const std::string& tenant) {
  MutexLock lock(mutex_);
  Taken& taken = taken_[tenant];
  if (taken.uploads >= max_uploads_) {
    return TooManyUploads(max_uploads_);
  }
  ++taken.uploads;
  return Place(taken.uploads, *this);
}

absl::Status TenantLimits::CheckStored(JobStore& store, const std::string& tenant, int64_t requests,
                                       int64_t bytes) const {
  const Quota quota = QuotaOf(tenant);
  if (quota.active_jobs == kNoQuota && quota.queued_requests == kNoQuota &&
      quota.stored_mib == kNoQuota) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const TenantUsage usage, store.ReadUsage(tenant));
  if (usage.active_jobs + 1 > quota.active_jobs) {
    return Exceeded(tenant, {.quota = "active-jobs",
                             .limit = quota.active_jobs,
                             .what = absl::StrCat("has ", usage.active_jobs, " active jobs"),
                             .next_step = "wait until one has ended, or cancel one",
                             .delay_ms = kJobDelayMs});
  }
  if (usage.queued_requests + requests > quota.queued_requests) {
    return Exceeded(tenant, {.quota = "queued-requests",
                             .limit = quota.queued_requests,
                             .what = absl::StrCat("has ", usage.queued_requests,
                                                  " queued requests and brings ", requests),
                             .next_step = "wait until jobs have ended, or cancel one",
                             .delay_ms = kJobDelayMs});
  }
  const int64_t mib = (usage.stored_bytes + bytes + kMiB - 1) / kMiB;
  if (mib > quota.stored_mib) {
    return Exceeded(tenant, {.quota = "stored-mib",
                             .limit = quota.stored_mib,
                             .what = absl::StrCat("would have ", mib, " MiB of inputs and results"),
                             .next_step = "delete jobs whose results you have (nightshift delete)",
                             .delay_ms = kJobDelayMs});
  }
  return absl::OkStatus();
}

}  // namespace nightshift
