// TenantLimits: holds each tenant to its quota (server/security/quota.h): what it takes of the
// daemon now, and what it has in the store.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/base/clock.h"
#include "kernels/base/mutex.h"
#include "server/security/access_control.h"
#include "server/security/quota.h"
#include "server/store/job_store.h"

namespace nightshift {

// Thread-safe. Errors: RESOURCE_EXHAUSTED (QUOTA_EXCEEDED) with QuotaFailure and how long to wait,
// naming tenant, quota and numbers.
class TenantLimits {
 public:
  // Both must outlive it. `max_uploads`: of each tenant at one time.
  TenantLimits(const AccessControl& access, const Clock& clock, int64_t max_uploads)
      : access_(access), clock_(clock), max_uploads_(max_uploads) {}

  // What a call takes while it lasts. Move-only; gives it back at the end.
  class Place {
   public:
    Place() = default;
    Place(int64_t& taken, TenantLimits& owner) : taken_(&taken), owner_(&owner) {}
    Place(Place&& other) noexcept
        : taken_(std::exchange(other.taken_, nullptr)), owner_(other.owner_) {}
    Place& operator=(Place&& other) noexcept;
    ~Place() { GiveBack(); }

   private:
    void GiveBack();
    int64_t* taken_ = nullptr;  // the owner's; null: none
    TenantLimits* owner_ = nullptr;
  };

  // A call that makes a job begins.
  absl::Status CountSubmit(const std::string& tenant);
  // Whether its jobs may have this priority (v1.Priority; 0: one that does not say).
  absl::Status CheckPriority(const std::string& tenant, int32_t priority) const;
  // A call that lasts begins. An upload is one too, and is held to max_uploads (BACKLOG_FULL) as
  // well.
  absl::StatusOr<Place> OpenStream(const std::string& tenant);
  absl::StatusOr<Place> OpenUpload(const std::string& tenant);

  // Whether the tenant may have one more job, of so many requests and bytes of input. Inside the
  // transaction that makes it this is exact; before, it saves an upload that would be refused.
  absl::Status CheckStored(JobStore& store, const std::string& tenant, int64_t requests,
                           int64_t bytes) const;

  // Of a tenant without a line in the access file, and without such a file: no limit.
  Quota QuotaOf(const std::string& tenant) const;

 private:
  struct Taken {
    int64_t streams = 0;
    int64_t uploads = 0;
    double submits = 0;  // of the bucket; falls with time
    int64_t submits_at_us = 0;
  };

  const AccessControl& access_;
  const Clock& clock_;
  const int64_t max_uploads_;
  Mutex mutex_;
  // Of tenants that have called: no more than the access file names, since it was first read.
  std::map<std::string, Taken> taken_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift
