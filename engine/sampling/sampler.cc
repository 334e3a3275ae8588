#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace nightshift {
namespace {

// Candidates kept for top-p: enough for nearly every row of a trained model; others take the second
// pass. More would cost the head time on every row.
constexpr int32_t kTopPCandidates = 64;
// Largest top-k whose candidates the head keeps itself; beyond it sorting the whole row is cheaper.
constexpr int32_t kMaxTopKCandidates = 256;

// Logits stay finite when divided by the smallest temperature; no real one comes near.
constexpr float kMaxLogit = 1e30F;

uint64_t Mix(uint64_t value) {  // SplitMix64's finaliser
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9ULL;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebULL;
  return value ^ (value >> 31);
}

uint64_t NoiseKey(const SamplingParams& params, int64_t position) {
  uint64_t key = Mix(params.seed + 0x9e3779b97f4a7c15ULL);
  key = Mix(key ^ Mix(params.request_key + 0xd1b54a32d192ed03ULL));
  if (params.choice > 0) {  // the first choice is what the request would get alone
    key = Mix(key ^ Mix(params.choice + 0xabc98388fb8fac03ULL));
  }
  return Mix(key ^ Mix(static_cast<uint64_t>(position) + 0x8cb92ba72f3d8dd7ULL));
}

bool IsCut(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1.0F || params.min_p > 0.0F;
}

float Logprob(float logit, const HeadState& state) {
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(state.max_logit) -
                            std::log(state.sum_exp));
}

double TemperedWeight(float logit, const HeadState& state, float temperature) {
  return std::exp((static_cast<double>(logit) - static_cast<double>(state.max_logit)) /
                  static_cast<double>(temperature));
}

// How many of the best tokens min-p leaves, at most `limit`, or nothing if that depends on tokens
// that were not kept.
std::optional<size_t> CountOfMinP(const SamplingParams& params, const HeadState& state,
                                  size_t limit) {
  const size_t kept = state.candidates.size();
  if (params.min_p > 0.0F) {
    for (size_t i = 0; i < std::min(limit, kept); ++i) {
      if (TemperedWeight(state.candidates[i].logit, state, params.temperature) <
          static_cast<double>(params.min_p)) {
        return i;
      }
    }
  }
  return kept >= limit || params.min_p == 0.0F ? std::optional<size_t>(limit) : std::nullopt;
}

// How many of the best tokens take part in the draw, or nothing if that depends on tokens that
// were not kept.
std::optional<size_t> EligibleCount(const SamplingParams& params, const HeadState& state,
                                    int64_t vocabulary) {
  const size_t all = static_cast<size_t>(vocabulary);
  const size_t kept = state.candidates.size();
  const size_t top_k = params.top_k > 0 ? std::min(static_cast<size_t>(params.top_k), all) : all;
  const std::optional<size_t> limit = CountOfMinP(params, state, top_k);
  if (!limit.has_value() || params.top_p >= 1.0F) {
    return limit.has_value() && kept >= *limit ? limit : std::nullopt;
  }
  double total = state.tempered_sum_exp;
  if (*limit < all) {
    if (kept < *limit) {
      return std::nullopt;
    }
    total = 0.0;
    for (size_t i = 0; i < *limit; ++i) {
      total += TemperedWeight(state.candidates[i].logit, state, params.temperature);
    }
  }
  double covered = 0.0;
  for (size_t i = 0; i < std::min(*limit, kept); ++i) {
    covered += TemperedWeight(state.candidates[i].logit, state, params.temperature);
    if (covered >= static_cast<double>(params.top_p) * total) {
      return i + 1;
    }
  }
  return kept >= *limit ? limit : std::nullopt;
}

Candidate NoisyWinner(std::span<const Candidate> candidates, const HeadRequest& request) {
  Candidate winner = candidates.front();
  float best = -std::numeric_limits<float>::infinity();
  for (const Candidate& candidate : candidates) {
    const float noisy =
        candidate.logit / request.temperature + NoiseAt(request.noise_key, candidate.token);
    if (noisy > best) {
      best = noisy;
      winner = candidate;
    }
  }
  return winner;
}

}  // namespace

HeadRequest MakeDrawRequest(const SamplingParams& params, int64_t position) {
  HeadRequest request;
  request.temperature = params.temperature;
  request.noise_key = NoiseKey(params, position);
  request.num_candidates = std::max(1, params.top_logprobs);
  if (params.temperature > 0.0F && IsCut(params)) {
    const bool small_top_k = params.top_k > 0 && params.top_k <= kMaxTopKCandidates;
    request.num_candidates =
        std::max(request.num_candidates, small_top_k ? params.top_k : kTopPCandidates);
  }
  return request;
}

HeadRequest MakeReportRequest(int32_t num_top) {
  HeadRequest request;
  request.num_candidates = std::max(1, num_top);
  return request;
}

HeadState InitialHeadState() {
  HeadState state;
  state.max_logit = -std::numeric_limits<float>::infinity();
  state.sum_exp = 0.0;
  state.tempered_sum_exp = 0.0;
  state.best_noisy = -std::numeric_limits<float>::infinity();
  state.noisy_winner = -1;
  state.noisy_winner_logit = 0.0F;
  return state;
}

bool HasFiniteLogits(const HeadState& state) {
  return std::abs(state.max_logit) <= kMaxLogit && std::isfinite(state.sum_exp);
}

std::optional<Candidate> Draw(const SamplingParams& params, const HeadRequest& request,
                              const HeadState& state, int64_t vocabulary) {
  if (params.temperature == 0.0F) {
    return state.candidates.front();
  }
  if (!IsCut(params)) {
    return Candidate{state.noisy_winner, state.noisy_winner_logit};
  }
  const std::optional<size_t> eligible = EligibleCount(params, state, vocabulary);
  if (!eligible.has_value()) {
    return std::nullopt;
  }
  return NoisyWinner(std::span(state.candidates).first(*eligible), request);
}

float UnadjustedLogit(int32_t token, float logit, const HeadRequest& request,
                      const HeadState& state) {
  const auto found = std::lower_bound(
      request.adjustments.begin(), request.adjustments.end(), token,
      [](const LogitAdjustment& adjustment, int32_t id) { return adjustment.token < id; });
  if (found == request.adjustments.end() || found->token != token) {
    return logit;
  }
  return state.unadjusted[static_cast<size_t>(found - request.adjustments.begin())];
}

TokenLogprob Report(int32_t token, float logit, const HeadState& state, int32_t num_top) {
  TokenLogprob result;
  result.token = token;
  result.logprob = Logprob(logit, state);
  const size_t count = std::min(static_cast<size_t>(num_top), state.candidates.size());
  result.top.reserve(count);
  for (const Candidate& candidate : std::span(state.candidates).first(count)) {
    result.top.push_back({candidate.token, Logprob(candidate.logit, state)});
  }
  return result;
}

std::vector<Candidate> SortedCandidates(std::span<const float> logits) {
  std::vector<Candidate> candidates(logits.size());
  for (size_t i = 0; i < logits.size(); ++i) {
    const float logit = std::isnan(logits[i]) ? -std::numeric_limits<float>::infinity() : logits[i];
    candidates[i] = {static_cast<int32_t>(i), logit};
  }
  std::sort(candidates.begin(), candidates.end(), [](const Candidate& a, const Candidate& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
  });
  return candidates;
}

}  // namespace nightshift
