#include "engine/memory/kv_layers.h"

#include <numeric>

namespace nightshift {

KvLayers::KvLayers(const ModelConfig& config) : window_(config.sliding_window) {
  int64_t num_sliding = 0;
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    num_sliding += IsSliding(config, layer) ? 1 : 0;
  }
  const int64_t num_full = config.num_layers - num_sliding;
  unit_layers_ = std::gcd(num_full, num_sliding);  // The other number where one is 0.
  full_ids_ = num_full / unit_layers_;
  sliding_ids_ = num_sliding / unit_layers_;
  int64_t next[2] = {0, 0};  // of each kind
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    const bool slides = IsSliding(config, layer);
    const int64_t index = next[slides ? 1 : 0]++;
    places_.push_back({slides, index / unit_layers_, index % unit_layers_});
  }
}

// The stretches from the window of the first query to the last position of a span of any
// alignment: window - 1 + span positions, which begin and end anywhere in a stretch.
KvPageNeeds KvLayers::Needs(int64_t span_tokens) const {
  return {.all = full_ids_,
          .window = sliding_ids_,
          .window_stretches = sliding_ids_ == 0 ? 0 : PagesFor(window_ - 1 + span_tokens) + 1};
}

}  // namespace nightshift
