// Plan: a policy with what it is predicted to take, what binds it, and what was rejected. Pure.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/policy/cost_model.h"
#include "engine/policy/placement_program.h"
#include "engine/policy/policy_search.h"
#include "engine/schedule/tier.h"

namespace nightshift {

struct PlanLane {
  std::string name;      // of a cost term
  double seconds = 0.0;  // of the whole job
  bool serial = false;   // nothing hides it
};

struct PlanPhase {
  std::string name;
  double seconds = 0.0;  // of the whole job
  std::vector<PlanLane> lanes;
  std::string longest;  // of the overlapping lanes; empty without any
};

// The row of a tier that holds most of what it may.
struct PlanTier {
  Tier tier = Tier::kDevice;
  std::string row;
  double bytes = 0.0;
  double capacity_bytes = 0.0;
};

// What more of something would give, found by planning again with it; block and batch follow, types
// and delegation stay.
struct PlanRelief {
  std::string what;   // "8 GiB more host memory", "twice the rate of read"
  double gain = 0.0;  // of tokens per second: 0.41 for +41 %
};

struct PlanRejection {
  std::string what;  // in what it differs: "weights in BF16", "a block of 72"
  BlockChoice choice;
  std::optional<double> slowdown;  // 0.12: takes 12 % longer; nothing: it cannot be
  std::string why;                 // what it waits for, or what it lacks
};

struct PlanOptions {
  SearchSpace space;
  double prompt_tokens = 0.0;  // of the whole job
  double output_tokens = 0.0;
};

struct Plan {
  BlockChoice choice;
  Shares shares = {};
  int64_t requests = 0;
  double seconds = 0.0;       // to finish the job
  double held_seconds = 0.0;  // for which one request is held
  double output_tokens_per_s = 0.0;
  double prompt_tokens_per_s = 0.0;
  std::vector<PlanPhase> phases;
  std::vector<PlanTier> tiers;  // those that have rows
  std::string binding;          // "waits for read 81 %, compute 17 % of the time"
  // By tier: seconds of the job that one more GiB would save at this choice; 0 where it does not
  // bind.
  std::array<double, 3> seconds_per_gib = {};
  std::vector<PlanRelief> reliefs;  // those above 0.5 %, the largest first
  std::vector<PlanRejection> rejections;
  int64_t num_programs = 0;  // linear programs solved for all of it
};

// The same arguments give the same plan.
// Errors: INVALID_ARGUMENT for what is out of range; RESOURCE_EXHAUSTED when nothing fits: which
// tier lacks how much, and which type of weights, keys and values would fit.
absl::StatusOr<Plan> MakePlan(const CostModel& cost_model, const PlanOptions& options);

const char* TierName(Tier tier);  // "device"

// Lines for people; one JSON object in one line. The same plan gives the same bytes.
std::string PlanText(const Plan& plan);
std::string PlanJson(const Plan& plan);

}  // namespace nightshift
