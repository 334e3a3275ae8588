// PlanTrials: of the plans that the formulas find, the one that takes least in virtual time. Pure.
//
// Formulas see the sums of a sweep. On a device with memory of its own, where several lanes are
// about equally busy, a plan that they prefer may take a quarter longer than another one, and what
// their rows say fits may be a page more than the pools have, which makes a block much smaller. So
// plans are made with attention on the device and on the host and with some of the capacities left
// free, and those that could be the best are run through the schedule.
#pragma once

#include <functional>

#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "engine/policy/cost_model.h"
#include "engine/policy/placement_program.h"
#include "engine/policy/plan.h"
#include "engine/policy/sweep_simulation.h"

namespace nightshift {

// A choice as an engine would run it.
struct TriedChoice {
  EngineOptions options;
  SimulatedRun run;
};
using TryChoice =
    std::function<absl::StatusOr<TriedChoice>(const BlockChoice& choice, const Shares& shares)>;

struct Trial {
  // Its times are those of the run; what each lane and the memory of a tier give are the formulas'
  // parts of it. Of attention on the other side the rejection tells what its best trial took.
  Plan plan;
  TriedChoice tried;
};

// The same arguments give the same trial. Errors: as MakePlan, and of the first trial where none
// ends (within the deadline, if there is one).
absl::StatusOr<Trial> TryPlans(const CostModel& cost_model, const PlanOptions& options,
                               const TryChoice& try_choice);

}  // namespace nightshift
