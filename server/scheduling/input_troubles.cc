#include "server/scheduling/input_troubles.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"

namespace nightshift {

absl::Status InputTroubles::Judge(const std::string& job_uid, int64_t index,
                                  const absl::Status& status, int64_t now_us) {
  Job& job = jobs_[job_uid];
  Row& row = job.rows.try_emplace(index, Row{.since_us = now_us}).first->second;
  ++row.attempts;
  if (row.attempts >= kMaxInputAttempts) {
    return absl::DataLossError(absl::StrCat(status.message(), "; tried ", row.attempts,
                                            " times in ", (now_us - row.since_us) / 1'000'000,
                                            " s"));
  }
  const int64_t wait_us =
      std::min(int64_t{1} << (row.attempts - 1), kMostIntervals) * interval_us_;
  if (job.retry_us <= now_us) {
    LOG(WARNING) << "input_waits job_uid=" << job_uid << " attempt=" << row.attempts
                 << " of=" << kMaxInputAttempts << " wait_us=" << wait_us << " error=\""
                 << status.message() << "\"";
  }
  job.retry_us = std::max(job.retry_us, now_us + wait_us);
  return status;
}

void InputTroubles::Succeeded(const std::string& job_uid, int64_t index) {
  const auto job = jobs_.find(job_uid);
  if (job == jobs_.end()) {
    return;
  }
  job->second.rows.erase(index);
  if (job->second.rows.empty()) {
    jobs_.erase(job);
  }
}

int64_t InputTroubles::WaitUntil(const std::string& job_uid, int64_t now_us) const {
  const auto job = jobs_.find(job_uid);
  return job == jobs_.end() || job->second.retry_us <= now_us ? 0 : job->second.retry_us;
}

int64_t InputTroubles::NextRetry(int64_t now_us) const {
  int64_t next_us = INT64_MAX;
  for (const auto& [job_uid, job] : jobs_) {
    if (job.retry_us > now_us) {
      next_us = std::min(next_us, job.retry_us);
    }
  }
  return next_us;
}

void InputTroubles::Retain(const std::set<std::string>& job_uids) {
  std::erase_if(jobs_, [&](const auto& entry) { return job_uids.count(entry.first) == 0; });
}

}  // namespace nightshift
