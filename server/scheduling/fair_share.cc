#include "server/scheduling/fair_share.h"

#include <algorithm>

namespace nightshift {
namespace {

// Of jobs[chosen], beside its tenant's other jobs of the class that want.
double WeightOf(std::span<const ShareJob> jobs, size_t chosen) {
  const ShareJob& job = jobs[chosen];
  const auto sharing = std::count_if(jobs.begin(), jobs.end(), [&](const ShareJob& other) {
    return other.wants && other.tenant == job.tenant && other.priority == job.priority;
  });
  return job.tenant_weight / static_cast<double>(std::max<ptrdiff_t>(sharing, 1));
}

}  // namespace

std::optional<size_t> FairShare::Next(std::span<const ShareJob> jobs) {
  std::optional<size_t> next;
  for (size_t i = 0; i < jobs.size(); ++i) {
    const ShareJob& job = jobs[i];
    State& state = jobs_[job.id];
    if (job.wants && !state.wanted) {
      state.virtual_time = std::max(state.virtual_time, served_);
    }
    state.wanted = job.wants;
    if (!job.wants) {
      continue;
    }
    const bool goes_first =
        !next.has_value() || job.priority > jobs[*next].priority ||
        (job.priority == jobs[*next].priority &&
         state.virtual_time < jobs_[jobs[*next].id].virtual_time);
    if (goes_first) {
      next = i;
    }
  }
  return next;
}

double FairShare::Take(std::span<const ShareJob> jobs, size_t chosen, double tokens) {
  State& state = jobs_[jobs[chosen].id];
  const double tag = state.virtual_time;
  state.virtual_time += tokens / WeightOf(jobs, chosen);
  return tag;
}

void FairShare::Serve(double tag) {
  served_ = std::max(served_, tag);
}

void FairShare::Return(const std::string& job_id) {
  const auto found = jobs_.find(job_id);
  if (found != jobs_.end()) {
    found->second.virtual_time = std::min(found->second.virtual_time, served_);
  }
}

void FairShare::End(const std::string& job_id) {
  jobs_.erase(job_id);
}

}  // namespace nightshift
