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
  // When its model was loaded last, by any clock that does not go back; 0: never.
  int64_t model_loaded_us = 0;
};

// How long a model keeps the engine while jobs of its priority wait for another: a load must not
// cost more than a twentieth of the time.
int64_t SliceOf(int64_t shortest_slice_us, int64_t load_us);

// `jobs` in the order in which they should run. The loaded model stays while any job has work for
// it, because a load costs as much as many sweeps; a job of higher priority than all of those takes
// over at once, one of the same priority when the slice is over: the model that has waited the
// longest, so that a week-long job lets the others in. No job with work: what is loaded stays.
std::optional<ModelKey> ChooseModel(std::span<const JobDemand> jobs,
                                    const std::optional<ModelKey>& loaded, bool slice_is_over);

}  // namespace nightshift
