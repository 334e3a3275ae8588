#include "engine/model/expert_config.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxExpertWidth = 1 << 20;

absl::Status Bounded(const char* field, int64_t value, int64_t high) {
  if (value < 1 || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat("model config: experts.", field, " is ", value, ", not from 1 to ", high));
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ExpertConfig::num_layers_with_experts() const {
  return std::count(layers.begin(), layers.end(), true);
}

absl::Status ValidateExperts(const ExpertConfig& experts, int64_t num_layers) {
  RETURN_IF_ERROR(Bounded("count", experts.count, kMaxExperts));
  RETURN_IF_ERROR(Bounded("per_token", experts.per_token, experts.count));
  RETURN_IF_ERROR(Bounded("ffn_width", experts.ffn_width, kMaxExpertWidth));
  const int64_t layers = experts.num_layers_with_experts();
  if (static_cast<int64_t>(experts.layers.size()) != num_layers || layers == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("model config: experts.layers names ", layers, " layers with experts among ",
                     experts.layers.size(), "; the model has ", num_layers, " layers"));
  }
  if (layers * experts.count > kMaxExpertsOfModel) {
    return absl::InvalidArgumentError(absl::StrCat(
        "model config: ", experts.count, " experts in each of ", layers, " layers are ",
        layers * experts.count, " experts; at most ", kMaxExpertsOfModel, " are supported"));
  }
  return absl::OkStatus();
}

}  // namespace nightshift
