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

uint64_t NoiseKey(uint64_t seed, uint64_t request_key, int64_t position) {
  uint64_t key = Mix(seed + 0x9e3779b97f4a7c15ULL);
  key = Mix(key ^ Mix(request_key + 0xd1b54a32d192ed03ULL));
  return Mix(key ^ Mix(static_cast<uint64_t>(position) + 0x8cb92ba72f3d8dd7ULL));
}

bool IsCut(const SamplingParams& params) {
  return params.top_k > 0 || params.top_p < 1.0F;
}

float Logprob(float logit, const HeadState& state) {
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(state.max_logit) -
                            std::log(state.sum_exp));
}

double TemperedWeight(float logit, const HeadState& state, float temperature) {
  return std::exp((static_cast<double>(logit) - static_cast<double>(state.max_logit)) /
                  static_cast<double>(temperature));
}

// How many of the best tokens take part in the draw, or nothing if that depends on tokens that
// were not kept.
std::optional<size_t> EligibleCount(const SamplingParams& params, const HeadState& state,
                                    int64_t vocabulary) {
  const size_t all = static_cast<size_t>(vocabulary);
  const size_t kept = state.candidates.size();
  const bool has_top_k = params.top_k > 0 && params.top_k < vocabulary;
  const size_t limit = has_top_k ? static_cast<size_t>(params.top_k) : all;
  if (has_top_k && kept < limit) {
    return std::nullopt;
  }
  if (params.top_p >= 1.0F) {
    return kept >= limit ? std::optional<size_t>(limit) : std::nullopt;
  }
  double total = state.tempered_sum_exp;
  if (has_top_k) {
    total = 0.0;
    for (size_t i = 0; i < limit; ++i) {
      total += TemperedWeight(state.candidates[i].logit, state, params.temperature);
    }
  }
  double covered = 0.0;
  for (size_t i = 0; i < std::min(limit, kept); ++i) {
    covered += TemperedWeight(state.candidates[i].logit, state, params.temperature);
    if (covered >= static_cast<double>(params.top_p) * total) {
      return i + 1;
    }
  }
  return kept >= limit ? std::optional<size_t>(limit) : std::nullopt;
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

std::optional<Candidate> Choose(const SamplingParams& params, const HeadRequest& request,
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

}  // namespace

HeadRequest MakeHeadRequest(const SamplingParams& params, int64_t position) {
  HeadRequest request;
  request.temperature = params.temperature;
  request.noise_key = NoiseKey(params.seed, params.request_key, position);
  request.num_candidates = std::max(1, params.top_logprobs);
  if (params.temperature > 0.0F && IsCut(params)) {
    const bool small_top_k = params.top_k > 0 && params.top_k <= kMaxTopKCandidates;
    request.num_candidates =
        std::max(request.num_candidates, small_top_k ? params.top_k : kTopPCandidates);
  }
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

std::optional<TokenLogprob> Sample(const SamplingParams& params, const HeadRequest& request,
                                   const HeadState& state, int64_t vocabulary) {
  const std::optional<Candidate> chosen = Choose(params, request, state, vocabulary);
  if (!chosen.has_value()) {
    return std::nullopt;
  }
  TokenLogprob result;
  result.token = chosen->token;
  result.logprob = Logprob(chosen->logit, state);
  const size_t num_top =
      std::min(static_cast<size_t>(params.top_logprobs), state.candidates.size());
  result.top.reserve(num_top);
  for (size_t i = 0; i < num_top; ++i) {
    const Candidate& candidate = state.candidates[i];
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
