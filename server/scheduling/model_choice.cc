#include "server/scheduling/model_choice.h"

#include <algorithm>

namespace nightshift {
namespace {

constexpr int64_t kLoadsInSlice = 20;

}  // namespace

int64_t SliceOf(int64_t shortest_slice_us, int64_t load_us) {
  return std::max(shortest_slice_us, kLoadsInSlice * load_us);
}

std::optional<ModelKey> ChooseModel(std::span<const JobDemand> jobs,
                                    const std::optional<ModelKey>& loaded, bool slice_is_over) {
  const auto first =
      std::find_if(jobs.begin(), jobs.end(), [](const JobDemand& job) { return job.has_work; });
  if (first == jobs.end()) {
    return loaded;
  }
  const auto of_loaded = std::find_if(jobs.begin(), jobs.end(), [&](const JobDemand& job) {
    return job.has_work && loaded.has_value() && job.key == *loaded;
  });
  const bool may_stay = of_loaded != jobs.end() && of_loaded->priority >= first->priority;
  if (may_stay && !slice_is_over) {
    return loaded;
  }
  // Of those that may take over, the model that was loaded the longest ago.
  auto next = jobs.end();
  for (auto job = jobs.begin(); job != jobs.end(); ++job) {
    const bool waits = job->has_work && job->priority == first->priority &&
                       !(may_stay && job->key == *loaded);
    if (waits && (next == jobs.end() || job->model_loaded_us < next->model_loaded_us)) {
      next = job;
    }
  }
  return next == jobs.end() ? loaded : std::optional(next->key);
}

}  // namespace nightshift
