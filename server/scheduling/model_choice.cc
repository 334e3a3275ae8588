#include "server/scheduling/model_choice.h"

#include <algorithm>

namespace nightshift {

std::optional<ModelKey> ChooseModel(std::span<const JobDemand> jobs,
                                    const std::optional<ModelKey>& loaded) {
  const auto first =
      std::find_if(jobs.begin(), jobs.end(), [](const JobDemand& job) { return job.has_work; });
  if (first == jobs.end()) {
    return loaded;
  }
  const auto of_loaded = std::find_if(jobs.begin(), jobs.end(), [&](const JobDemand& job) {
    return job.has_work && loaded.has_value() && job.key == *loaded;
  });
  if (of_loaded != jobs.end() && of_loaded->priority >= first->priority) {
    return loaded;
  }
  return first->key;
}

}  // namespace nightshift
