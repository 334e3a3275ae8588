// Checking a JobSpec and resolving what its caller left open. Pure.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "server/input/parse_limits.h"

#include "nightshift/v1/jobs.pb.h"

namespace nightshift {

// `now_us`: the wall clock, from which a completion window goes on.
// Errors: INVALID_ARGUMENT with every wrong field (FIELD_INVALID, FIELD_OUT_OF_RANGE).
absl::Status CheckSpec(const v1::JobSpec& spec, const ParseLimits& limits, int64_t now_us);

// What a spec becomes when it is stored: no field is left to a default that a later version or
// another daemon might read differently, but for max_output_tokens: a length that nobody asked for
// is clipped to the context, and one that somebody did is not.
struct SpecDefaults {
  absl::string_view model;  // as the catalog names it
  v1::ComputeTypeChoice compute_type = v1::COMPUTE_TYPE_CHOICE_BF16;
  v1::Compression compression = {};  // resolved (rpc/compression.h)
  double sparse_attention = 1.0;
  uint64_t seed = 0;                 // drawn
  int32_t most_priority = v1::PRIORITY_HIGH;  // of the tenant: of a job that does not say, too
};
v1::JobSpec ResolveSpec(v1::JobSpec spec, const SpecDefaults& defaults);

// Of a window that CheckSpec let through.
int64_t WindowMicros(const google::protobuf::Duration& window);

}  // namespace nightshift
