// WorkloadProfile: the requests that a plan is for, as counts by length. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"

namespace nightshift {

// So many requests of one shape.
struct WorkloadClass {
  int64_t prompt_tokens = 0;  // at least 1
  int64_t output_tokens = 0;  // predicted; 0: only the prompt is scored
  int64_t requests = 0;       // at least 1
};

struct WorkloadProfile {
  std::vector<WorkloadClass> classes;
  int64_t shared_prefix_tokens = 0;        // that all prompts begin with
  std::optional<double> deadline_seconds;  // for all requests

  int64_t requests() const;
  double mean_prompt_tokens() const;  // without what is shared
  double mean_output_tokens() const;
  // Bounded: at most `max_classes` classes, near lengths merged to their mean (rounded up), counts
  // kept.
  void Merge(size_t max_classes);
  // INVALID_ARGUMENT naming what is out of range: no request, more tokens than `context_tokens`.
  absl::Status Validate(int64_t context_tokens) const;
};

}  // namespace nightshift
