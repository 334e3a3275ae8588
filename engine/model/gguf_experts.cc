#include "engine/model/gguf_experts.h"

#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace nightshift {
namespace {

// One pass over the tensors, however many layers the file claims.
std::vector<bool> LayersWithRouters(int64_t num_layers, const std::vector<SourceTensor>& tensors) {
  constexpr absl::string_view kPrefix = "blk.";
  constexpr absl::string_view kEnding = ".ffn_gate_inp.weight";
  std::vector<bool> layers(static_cast<size_t>(num_layers), false);
  for (const SourceTensor& tensor : tensors) {
    absl::string_view number = tensor.name;
    int64_t layer = -1;
    if (absl::ConsumePrefix(&number, kPrefix) && absl::ConsumeSuffix(&number, kEnding) &&
        absl::SimpleAtoi(number, &layer) && layer >= 0 && layer < num_layers) {
      layers[static_cast<size_t>(layer)] = true;
    }
  }
  return layers;
}

}  // namespace

ExpertConfig ReadGgufExperts(int64_t num_experts, const GgufCheckpoint& checkpoint,
                             const ModelConfig& config, GgufKeys& keys) {
  // The families that we read all choose by a softmax, and the chosen shares sum to 1.
  constexpr int64_t kSoftmax = 1;
  ExpertConfig experts;
  experts.count = num_experts;
  experts.per_token = keys.Required("expert_used_count");
  experts.ffn_width = keys.Integer("expert_feed_forward_length", config.ffn_width);
  experts.layers = LayersWithRouters(config.num_layers, checkpoint.tensors());
  if (keys.Integer("expert_gating_func", kSoftmax) != kSoftmax) {
    keys.Refuse("expert_gating_func", "is not 1, softmax, which is all that is supported");
  }
  if (keys.Integer("expert_shared_count", 0) != 0) {
    keys.Refuse("expert_shared_count", "is above 0: shared experts are not supported");
  }
  return experts;
}

}  // namespace nightshift
