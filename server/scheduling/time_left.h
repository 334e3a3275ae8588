// TimeLeft: when jobs will be done: the queue run in virtual time, from what is left of each job.
// Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/scheduling/job_calendar.h"
#include "server/scheduling/job_context.h"

namespace nightshift {

// Seconds of the engine for one token, while the block is full.
struct TokenCosts {
  double prompt_seconds = 0.0;
  double output_seconds = 0.0;
};

// How long sweeps take against what was predicted of them: the plan's word at first, then more and
// more what was observed. One thread.
class Pace {
 public:
  void Add(double predicted_seconds, double observed_seconds);
  // By what predicted seconds are to be multiplied.
  double ratio() const;
  // Of that: about its share that may be wrong, from 0.35 down to 0.1.
  double uncertainty() const;

 private:
  double predicted_seconds_ = 0.0;
  double observed_seconds_ = 0.0;
};

struct TimeLeft {
  double seconds = 0.0;  // likely
  double least_seconds = 0.0;
  double most_seconds = 0.0;
};

// What is left of a job.
struct JobLeft {
  std::string id;
  size_t model = 0;                       // of QueueState::models
  int32_t priority = 0;                   // a higher one goes first
  const JobCalendar* calendar = nullptr;  // null: it may run at any time
  TimeLeft alone;                         // if it had the engine to itself
};

// A model that queued jobs need.
struct QueuedModel {
  ModelKey key;
  int64_t loaded_us = 0;  // as JobDemand::model_loaded_us
  double load_seconds = 0.0;
};

struct QueueState {
  int64_t now_us = 0;  // wall clock
  std::vector<QueuedModel> models;
  std::optional<size_t> loaded;     // of those
  double slice_seconds = 0.0;       // the shortest slice, as SliceOf takes it
  double slice_left_seconds = 0.0;  // of the loaded model
};

// By id, until each job is done, as the engine is given to them: by ChooseModel, with slices and
// loads; of the loaded model those of the highest priority that may run, evenly. `jobs` in the
// order in which they should run. A job that is not reached in some thousand turns (months of
// slices, a window that never opens) is left out.
std::map<std::string, TimeLeft> TimesLeft(std::span<const JobLeft> jobs, const QueueState& state);

}  // namespace nightshift
