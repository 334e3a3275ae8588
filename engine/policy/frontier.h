// Frontier: how much throughput a bound on latency costs. Pure.
//
// Plans for a series of blocks and of bounds on the time for which one request is held, and keeps
// those that no other one beats in both. Source: FlexGen (Sheng et al. 2023) figure 1.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/policy/cost_model.h"
#include "engine/policy/placement_program.h"
#include "engine/policy/plan.h"

namespace nightshift {

struct FrontierPoint {
  double held_seconds = 0.0;  // latency: for which one request is held
  double tokens_per_s = 0.0;
  BlockChoice choice;
  Shares shares = {};
};

struct Frontier {
  std::string rate_name;              // "generated tokens/s"; of prompts when nothing is generated
  std::vector<FrontierPoint> points;  // both values ascend
};

// Errors: as SearchPolicy.
absl::StatusOr<Frontier> FindFrontier(const CostModel& cost_model, const PlanOptions& options);

// A table; one JSON object in one line; a plot with logarithmic axes. The same frontier gives the
// same bytes.
std::string FrontierText(const Frontier& frontier);
std::string FrontierJson(const Frontier& frontier);
std::string FrontierSvg(const Frontier& frontier, const std::string& title);

}  // namespace nightshift
