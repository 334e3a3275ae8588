// SweepSimulation: a job run in virtual time. The engine's own schedule, steps, waits, rings and
// page accounting, with the durations of a hardware profile in place of a machine. Pure.
//
// Work is bounded, whatever the size of the job:
// - Requests. A job of more than four full blocks is run as one of four; each request beyond them
//   takes what those in the middle took, from the end of the first block's worth of results to the
//   last but one. By then blocks that began alike have mixed as far as their lengths let them, and
//   a period of the schedule is a whole number of blocks.
// - Sweeps. Those that ask the same of every lane, to within a share that starts at 2 % and grows
//   until the steps of one sweep of each kind are few enough, take in proportion to their busiest
//   lane what that one takes. Its time is that of the last of three equal sweeps in a row, so that
//   what reading ahead of the sweep before does for it is in it.
// - Steps. Of many streamed shards neighbours of one layer are one transfer (WorkOfPlan).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "engine/model/pack.h"
#include "engine/policy/hardware_profile.h"
#include "engine/policy/sweep_costs.h"
#include "engine/policy/workload_profile.h"
#include "engine/schedule/sweep_steps.h"

namespace nightshift {

struct SimulatedMachine {
  const PackManifest& manifest;
  std::string name;       // of the model, in messages
  EngineOptions options;  // budgets, shares, schedule; paths and threads are not looked at
  const HardwareProfile& hardware;
};

struct SimulatedRun {
  double seconds = 0.0;       // of the whole workload
  double tokens_per_s = 0.0;  // of prompts, with what is shared counted once, and sampled
  double prompt_tokens_per_s = 0.0;
  double output_tokens_per_s = 0.0;
  double seconds_per_request = 0.0;  // once blocks have mixed
  // Of the requests that were run through.
  int64_t simulated_requests = 0;
  int64_t simulated_sweeps = 0;
  double simulated_seconds = 0.0;
  LaneSeconds lane_seconds = {};         // in which each lane worked
  LaneId bottleneck = LaneId::kCompute;  // the lane that worked most
  int64_t evictions = 0;
  // What the pools take, and the most page ids held at one time.
  MemoryPlan memory;
  KvPages most_pages;
};

// Errors: INVALID_ARGUMENT (workload, options, profile; a block of more than 2,097,152 requests or 1e8
// visits of requests by sweeps; a sweep of more than 1e9 s); RESOURCE_EXHAUSTED as PlanMemory, or when
// a request does not fit.
absl::StatusOr<SimulatedRun> SimulateRun(const SimulatedMachine& machine,
                                         const WorkloadProfile& workload);

}  // namespace nightshift
