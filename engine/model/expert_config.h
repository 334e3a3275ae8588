// ExpertConfig: what a mixture of experts has beside a dense model. In some or all of its layers
// the feed-forward is many small ones, the experts, of which a router picks a few for each token.
// Source: Mixtral of Experts (Jiang et al. 2024) section 2.1.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/status.h"

namespace nightshift {

struct ExpertConfig {
  int64_t count = 0;      // X: experts of a layer
  int64_t per_token = 0;  // of them, for one token
  int64_t ffn_width = 0;  // F of one expert
  // The weights of a token's experts are their shares of a softmax over its chosen ones; if false,
  // over all.
  bool normalise = true;
  std::vector<bool> layers;  // [L] which have experts; the others are dense

  int64_t num_layers_with_experts() const;
};

// Bounds on `count`, and on the experts of all layers together: each has three tensors, which a
// pack's manifest lists in about 700 bytes.
inline constexpr int64_t kMaxExperts = 4096;
inline constexpr int64_t kMaxExpertsOfModel = 1 << 17;

// Errors: INVALID_ARGUMENT naming the field and its bounds.
absl::Status ValidateExperts(const ExpertConfig& experts, int64_t num_layers);

}  // namespace nightshift
