// Plans for people ("key: value" lines) and for programs (one line of JSON). Pure.
#pragma once

#include <string>

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

std::string PolicyText(const v1::Policy& policy);
std::string PolicyJson(const v1::Policy& policy);

// As those, with what would be faster and what was rejected.
std::string ExplanationText(const v1::ExplainPolicyResponse& explanation);
std::string ExplanationJson(const v1::ExplainPolicyResponse& explanation);

}  // namespace nightshift
