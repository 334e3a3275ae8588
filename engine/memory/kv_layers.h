// KvLayers: which layers keep keys of every position and which of a window only, and how layers
// share page ids.
//
// A page id names one stretch of 32 positions in `unit_layers` layers of one kind. All layers share
// one id where they are of one kind; else the unit is the greatest common divisor of both kinds'
// numbers, so that ids of both come from one pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/model/config.h"
#include "kernels/kv_page.h"

namespace nightshift {

// Stretches of 32 positions that `positions` positions of one sequence take.
constexpr int64_t PagesFor(int64_t positions) {
  return (positions + kPagePositions - 1) / kPagePositions;
}

// How many page ids a sequence takes.
struct KvPageNeeds {
  int64_t page_positions = kPagePositions;  // of a stretch
  int64_t all = 1;                          // a stretch, in the layers that keep every position
  int64_t window = 0;                       // a stretch, in the layers that keep a window
  int64_t window_stretches = 0;             // most that those keep at one time

  // Most ids that a sequence of `positions` positions holds at one time.
  int64_t Most(int64_t positions) const {
    const int64_t stretches = (positions + page_positions - 1) / page_positions;
    return all * stretches + window * std::min(stretches, window_stretches);
  }

  // Output tokens counted for a request beyond what it has when others ask for room. More makes
  // evictions rarer and the block smaller; an eviction costs one prefill of the request.
  static constexpr int64_t kHeadroomTokens = 128;
  // Ids to count for a request when another asks for room: what it has alone and some tokens ahead.
  // `shared_stretches` of its first are counted elsewhere.
  int64_t ToCommit(int64_t known_tokens, int64_t output_tokens_left,
                   int64_t shared_stretches) const {
    return Most(known_tokens + std::min(output_tokens_left, kHeadroomTokens) -
                shared_stretches * page_positions);
  }
};

class KvLayers {
 public:
  explicit KvLayers(const ModelConfig& config);

  // Where a layer's pages are: id number `unit` of a stretch's ids of the layer's kind, and layer
  // `slot` of those that the id stands for.
  struct Place {
    bool slides = false;
    int64_t unit = 0;
    int64_t slot = 0;
  };
  const Place& place(int64_t layer) const { return places_[static_cast<size_t>(layer)]; }
  int64_t unit_layers() const { return unit_layers_; }
  // Ids that a stretch takes in the layers of one kind, and in all layers.
  int64_t ids_per_stretch(bool sliding) const { return sliding ? sliding_ids_ : full_ids_; }
  int64_t ids_per_stretch() const { return full_ids_ + sliding_ids_; }
  // Stretches that lie whole before the window of the query at `position`: sliding layers need them
  // no more.
  int64_t StretchesBehind(int64_t position) const {
    return std::max<int64_t>(0, position + 1 - window_) / kPagePositions;
  }
  // For sequences that grow by at most `span_tokens` positions a sweep.
  KvPageNeeds Needs(int64_t span_tokens) const;

 private:
  std::vector<Place> places_;
  int64_t window_ = 0;
  int64_t unit_layers_ = 0;
  int64_t full_ids_ = 0;
  int64_t sliding_ids_ = 0;
};

}  // namespace nightshift
