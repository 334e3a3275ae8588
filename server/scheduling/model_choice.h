// ChooseModel: which model should be loaded. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "server/scheduling/job_context.h"

namespace nightshift {

// A job that is queued or running, as the choice sees it.
struct JobDemand {
  ModelKey key;
  int32_t priority = 0;
  // Rows that wait in the store or are in the runner's hands.
  bool has_work = false;
};

// `jobs` in the order in which they should run. The loaded model stays while any job has work for
// it, because a load costs as much as many sweeps; a job of higher priority than all of those takes
// over at once. No job with work: what is loaded stays.
std::optional<ModelKey> ChooseModel(std::span<const JobDemand> jobs,
                                    const std::optional<ModelKey>& loaded);

}  // namespace nightshift
