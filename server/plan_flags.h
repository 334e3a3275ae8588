// PlanFlags: the flags of `nightshift plan` that are written in another form than they are held.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"

#include "server/tier_flags.h"
#include "server/tools/plan_model.h"

namespace nightshift {

struct PlanFlags {
  std::string form = "nightshift";
  std::string deadline;
  std::string max_latency;
  std::string weights;
  std::string kv;
  std::string attention = "any";
  std::string weight_shares;
  std::string kv_shares;
  std::string activation_shares;
};

// All of them, once; each refers to a field of `flags`.
std::vector<TierFlag> ListPlanFlags(PlanFlags& flags);

// What they say. Errors: INVALID_ARGUMENT naming flag and text.
absl::Status ReadPlanFlags(const PlanFlags& flags, PlanModelOptions& options);

}  // namespace nightshift
