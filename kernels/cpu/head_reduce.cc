#include "kernels/cpu/head_reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

namespace nightshift::cpu {
namespace {

bool IsBetter(const Candidate& a, const Candidate& b) {
  return a.logit > b.logit || (a.logit == b.logit && a.token < b.token);
}

void ReduceSums(const float* logits, int64_t count, float tile_max, const HeadRequest& request,
                HeadState& state) {
  const float factor = request.temperature > 0.0F ? 1.0F / request.temperature : 0.0F;
  if (tile_max > state.max_logit) {
    const double step = static_cast<double>(state.max_logit) - static_cast<double>(tile_max);
    state.sum_exp *= std::exp(step);
    if (factor > 0.0F) state.tempered_sum_exp *= std::exp(step * static_cast<double>(factor));
    state.max_logit = tile_max;
  }
  // Until a finite logit comes there is nothing to be relative to.
  if (state.max_logit == -std::numeric_limits<float>::infinity()) return;
  const TileSums sums = SumExpsOfTile(logits, count, state.max_logit, factor);
  state.sum_exp += static_cast<double>(sums.plain);
  if (factor > 0.0F) state.tempered_sum_exp += static_cast<double>(sums.tempered);
}

void ReduceWinner(const float* logits, int64_t count, int32_t first_token,
                  const HeadRequest& request, HeadState& state) {
  const bool is_noisy = request.temperature > 0.0F;
  for (int64_t i = 0; i < count; ++i) {
    if (is_noisy) {
      i = NextContender({.logits = logits,
                         .count = count,
                         .first_token = first_token,
                         .noise_key = request.noise_key,
                         .temperature = request.temperature,
                         .best_noisy = state.best_noisy},
                        i);
      if (i == count) return;
    }
    const int32_t token = first_token + static_cast<int32_t>(i);
    float value = logits[i];
    if (is_noisy) value = value / request.temperature + NoiseAt(request.noise_key, token);
    if (value > state.best_noisy) {
      state.best_noisy = value;
      state.noisy_winner = token;
      state.noisy_winner_logit = logits[i];
    }
  }
}

// Keeps at most twice the wanted number and cuts back when full, so that a token costs O(1).
class CandidateList {
 public:
  CandidateList(std::vector<Candidate>& list, int32_t wanted)
      : list_(list), wanted_(static_cast<size_t>(wanted)) {
    if (list_.size() >= wanted_) Cut();
  }

  // Logits that do not reach this cannot enter. Equal ones cannot either: tokens ascend.
  float threshold() const { return threshold_; }

  void Add(const Candidate& candidate) {
    list_.push_back(candidate);
    if (list_.size() >= 2 * wanted_ + 64 || list_.size() == wanted_) Cut();
  }

  void Finish() {
    std::sort(list_.begin(), list_.end(), IsBetter);
    if (list_.size() > wanted_) list_.resize(wanted_);
  }

 private:
  void Cut() {
    const auto last = list_.begin() + static_cast<std::ptrdiff_t>(wanted_) - 1;
    std::nth_element(list_.begin(), last, list_.end(), IsBetter);
    threshold_ = last->logit;
    list_.resize(wanted_);
  }

  std::vector<Candidate>& list_;
  size_t wanted_;
  float threshold_ = -std::numeric_limits<float>::infinity();
};

// Hands out the tiles of a row with the request's adjustments applied.
class AdjustedTiles {
 public:
  // `unadjusted` says how many adjustments earlier shards have used.
  AdjustedTiles(std::span<const LogitAdjustment> adjustments, std::vector<float>& unadjusted)
      : left_(adjustments.subspan(unadjusted.size())), unadjusted_(unadjusted) {}

  // The logits of tokens [first_token, first_token + count), count at most kHeadTile: `tile` itself
  // where nothing changes, else a copy that lives until the next call.
  const float* Apply(const float* tile, int64_t count, int32_t first_token) {
    const int64_t end_token = first_token + count;
    if (left_.empty() || left_.front().token >= end_token) return tile;
    std::copy_n(tile, count, copy_.begin());
    while (!left_.empty() && left_.front().token < end_token) {
      float& logit = copy_[static_cast<size_t>(left_.front().token - first_token)];
      unadjusted_.push_back(logit);
      logit = AdjustLogit(left_.front(), logit);
      left_ = left_.subspan(1);
    }
    return copy_.data();
  }

 private:
  std::span<const LogitAdjustment> left_;
  std::vector<float>& unadjusted_;
  std::array<float, kHeadTile> copy_;
};

}  // namespace

void ReduceHeadRow(const float* logits, int64_t count, int32_t first_token,
                   const HeadRequest& request, HeadState& state) {
  CandidateList candidates(state.candidates, request.num_candidates);
  AdjustedTiles tiles(request.adjustments, state.unadjusted);
  for (int64_t first = 0; first < count; first += kHeadTile) {
    const int64_t part = std::min(kHeadTile, count - first);
    const int32_t tile_token = first_token + static_cast<int32_t>(first);
    const float* tile = tiles.Apply(logits + first, part, tile_token);
    const float tile_max = MaxOfTile(tile, part);
    ReduceSums(tile, part, tile_max, request, state);
    if (request.temperature > 0.0F || tile_max > state.best_noisy) {
      ReduceWinner(tile, part, tile_token, request, state);
    }
    if (!(tile_max > candidates.threshold())) continue;
    for (int64_t i = 0; i < part; ++i) {
      if (tile[i] > candidates.threshold()) {
        candidates.Add({tile_token + static_cast<int32_t>(i), tile[i]});
      }
    }
  }
  candidates.Finish();
}

}  // namespace nightshift::cpu
