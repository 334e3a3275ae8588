// A plan as the API shows it. Pure.
#pragma once

#include "server/scheduling/policy_state.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// Takes out of the policy how much work it was made for, which is of all tenants.
void HideWorkload(v1::Policy& policy);

v1::Policy MakePolicy(const PolicyState& state);
v1::ExplainPolicyResponse MakeExplanation(const PolicyState& state);

}  // namespace nightshift
