#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

std::vector<float> RandomLogits(size_t vocabulary, float spread, uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, spread);
  std::vector<float> logits(vocabulary);
  for (float& logit : logits) {
    logit = normal(generator);
  }
  return logits;
}

// What the head keeps of a row, computed plainly.
HeadState StateOf(const std::vector<float>& logits, const HeadRequest& request) {
  HeadState state = InitialHeadState();
  state.candidates = SortedCandidates(logits);
  state.max_logit = state.candidates.front().logit;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double relative = static_cast<double>(logits[i]) - static_cast<double>(state.max_logit);
    state.sum_exp += std::exp(relative);
    if (request.temperature == 0.0F) {
      continue;
    }
    state.tempered_sum_exp += std::exp(relative / static_cast<double>(request.temperature));
    const float noisy =
        logits[i] / request.temperature + NoiseAt(request.noise_key, static_cast<int32_t>(i));
    if (noisy > state.best_noisy) {
      state.best_noisy = noisy;
      state.noisy_winner = static_cast<int32_t>(i);
      state.noisy_winner_logit = logits[i];
    }
  }
  state.candidates.resize(
      std::min(state.candidates.size(), static_cast<size_t>(request.num_candidates)));
  return state;
}

TokenLogprob SampleAt(const SamplingParams& params, const std::vector<float>& logits,
                      int64_t position) {
  const HeadRequest request = MakeDrawRequest(params, position);
  HeadState state = StateOf(logits, request);
  const int64_t vocabulary = static_cast<int64_t>(logits.size());
  std::optional<Candidate> drawn = Draw(params, request, state, vocabulary);
  if (!drawn.has_value()) {
    state.candidates = SortedCandidates(logits);
    drawn = Draw(params, request, state, vocabulary);
  }
  EXPECT_TRUE(drawn.has_value());
  const Candidate token = drawn.value_or(Candidate());
  return Report(token.token, token.logit, state, params.top_logprobs);
}

// The probability of each token after temperature, min-p, top-k and top-p, from the definitions.
std::vector<double> ExactProbabilities(const SamplingParams& params,
                                       const std::vector<float>& logits) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (params.top_k > 0) {
    order.resize(std::min(order.size(), static_cast<size_t>(params.top_k)));
  }
  std::vector<double> weights(logits.size(), 0.0);
  double total = 0.0;
  for (size_t token : order) {
    const double weight = std::exp(static_cast<double>(logits[token] - logits[order[0]]) /
                                   static_cast<double>(params.temperature));
    weights[token] = weight >= static_cast<double>(params.min_p) ? weight : 0.0;
    total += weights[token];
  }
  double before = 0.0;
  double kept = 0.0;
  for (size_t token : order) {
    const double weight = weights[token];
    if (before >= static_cast<double>(params.top_p) * total) {
      weights[token] = 0.0;
    }
    kept += weights[token];
    before += weight;
  }
  for (double& weight : weights) {
    weight /= kept;
  }
  return weights;
}

// Pearson's statistic of draws at positions 0, 1, ...; tokens of probability 0 must not occur.
double ChiSquare(const SamplingParams& params, const std::vector<float>& logits, int draws) {
  const std::vector<double> exact = ExactProbabilities(params, logits);
  std::vector<int> counts(logits.size(), 0);
  for (int position = 0; position < draws; ++position) {
    ++counts[static_cast<size_t>(SampleAt(params, logits, position).token)];
  }
  double statistic = 0.0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (exact[i] == 0.0) {
      EXPECT_EQ(counts[i], 0) << "token " << i;
      continue;
    }
    const double expected = exact[i] * draws;
    statistic += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return statistic;
}

// The 99.9 % quantile of the chi-square distribution (Wilson and Hilferty's approximation).
double ChiSquareLimit(double degrees) {
  const double term = 2.0 / (9.0 * degrees);
  return degrees * std::pow(1.0 - term + 3.09 * std::sqrt(term), 3.0);
}

TEST(SamplerTest, GreedyTakesTheBestLogitAndOfEqualOnesTheLowerToken) {
  SamplingParams params;
  params.temperature = 0.0F;
  EXPECT_EQ(SampleAt(params, {0.5F, 2.0F, -1.0F, 2.0F}, 3).token, 1);
}

TEST(SamplerTest, LogprobsAreOfTheModelsOwnDistribution) {
  SamplingParams params;
  params.temperature = 3.0F;
  params.top_k = 2;
  params.top_logprobs = 3;
  const std::vector<float> logits = {1.0F, 0.0F, 2.0F, -1.0F};
  double sum = 0.0;
  for (float logit : logits) {
    sum += std::exp(static_cast<double>(logit));
  }
  const TokenLogprob token = SampleAt(params, logits, 0);
  const double logit = static_cast<double>(logits[static_cast<size_t>(token.token)]);
  EXPECT_NEAR(token.logprob, logit - std::log(sum), 1e-6);
  ASSERT_EQ(token.top.size(), 3U);
  EXPECT_EQ(token.top[0].token, 2);
  EXPECT_EQ(token.top[1].token, 0);
  EXPECT_EQ(token.top[2].token, 1);
  EXPECT_NEAR(token.top[0].logprob, 2.0 - std::log(sum), 1e-6);
}

TEST(SamplerTest, DrawsFollowTheExactProbabilities) {
  const std::vector<float> logits = RandomLogits(12, 1.5F, 1);
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    SamplingParams params;
    params.temperature = temperature;
    params.seed = 42;
    EXPECT_LT(ChiSquare(params, logits, 20000), ChiSquareLimit(11)) << temperature;
  }
}

TEST(SamplerTest, DrawsFollowTheExactProbabilitiesAfterMinPTopKAndTopP) {
  const std::vector<float> logits = RandomLogits(200, 1.0F, 2);
  struct Case {
    int32_t top_k;
    float top_p;
    float min_p = 0.0F;
  };
  for (const Case& cut :
       {Case{10, 1.0F}, Case{0, 0.3F}, Case{40, 0.6F}, Case{0, 0.9F}, Case{0, 1.0F, 0.2F},
        Case{0, 1.0F, 0.02F}, Case{0, 0.8F, 0.1F}, Case{12, 0.8F, 0.05F}}) {
    SamplingParams params;
    params.seed = 7;
    params.top_k = cut.top_k;
    params.top_p = cut.top_p;
    params.min_p = cut.min_p;
    const std::vector<double> exact = ExactProbabilities(params, logits);
    const auto eligible = std::count_if(exact.begin(), exact.end(), [](double p) { return p > 0; });
    EXPECT_LT(ChiSquare(params, logits, 10000), ChiSquareLimit(static_cast<double>(eligible - 1)))
        << "top_k " << cut.top_k << " top_p " << cut.top_p << " min_p " << cut.min_p;
  }
}

TEST(SamplerTest, EachDrawIsTheNoisyWinnerOfTheNaivelyCutVocabulary) {
  std::mt19937 generator(5);
  for (int round = 0; round < 300; ++round) {
    SamplingParams params;
    params.seed = static_cast<uint64_t>(round);
    params.temperature = std::uniform_real_distribution<float>(0.2F, 2.0F)(generator);
    params.top_k = std::uniform_int_distribution<int32_t>(0, 500)(generator);
    params.top_p = std::uniform_real_distribution<float>(0.05F, 1.0F)(generator);
    params.min_p =
        round % 3 == 0 ? 0.0F : std::uniform_real_distribution<float>(0.0F, 0.05F)(generator);
    const std::vector<float> logits = RandomLogits(400, 2.0F, static_cast<uint32_t>(round));
    const std::vector<double> exact = ExactProbabilities(params, logits);
    const uint64_t key = MakeDrawRequest(params, round).noise_key;
    int32_t winner = -1;
    float best = -std::numeric_limits<float>::infinity();
    for (int32_t token = 0; token < 400; ++token) {
      const size_t i = static_cast<size_t>(token);
      const float noisy = logits[i] / params.temperature + NoiseAt(key, token);
      if (exact[i] > 0.0 && noisy > best) {
        best = noisy;
        winner = token;
      }
    }
    EXPECT_EQ(SampleAt(params, logits, round).token, winner) << "round " << round;
  }
}

TEST(SamplerTest, AsksForAllTokensOnlyWhenTheKeptOnesDoNotCoverTopP) {
  SamplingParams params;
  params.top_p = 0.9F;
  const HeadRequest request = MakeDrawRequest(params, 0);
  const std::vector<float> flat(1000, 0.0F);
  EXPECT_FALSE(Draw(params, request, StateOf(flat, request), 1000).has_value());
  std::vector<float> peaked = flat;
  peaked[17] = 20.0F;
  const std::optional<Candidate> token = Draw(params, request, StateOf(peaked, request), 1000);
  ASSERT_TRUE(token.has_value());
  EXPECT_EQ(token->token, 17);
}

TEST(SamplerTest, AsksForAllTokensOnlyWhenTheKeptOnesDoNotReachTheEndOfMinP) {
  SamplingParams params;
  params.min_p = 0.5F;
  const HeadRequest request = MakeDrawRequest(params, 0);
  std::vector<float> logits(1000, 0.0F);
  EXPECT_FALSE(Draw(params, request, StateOf(logits, request), 1000).has_value());
  logits[17] = logits[400] = 1.0F;  // the others have 37 % of these
  const std::optional<Candidate> token = Draw(params, request, StateOf(logits, request), 1000);
  ASSERT_TRUE(token.has_value());
  EXPECT_TRUE(token->token == 17 || token->token == 400);
}

TEST(SamplerTest, UnadjustedLogitsAreThoseTheHeadSaw) {
  const std::vector<LogitAdjustment> adjustments = {{.token = 2}, {.token = 5, .bias = 1.0F}};
  HeadRequest request;
  request.adjustments = adjustments;
  HeadState state = InitialHeadState();
  state.unadjusted = {0.25F, -1.0F};
  EXPECT_EQ(UnadjustedLogit(5, 0.0F, request, state), -1.0F);
  EXPECT_EQ(UnadjustedLogit(2, 0.25F, request, state), 0.25F);
  EXPECT_EQ(UnadjustedLogit(4, 3.0F, request, state), 3.0F);
  EXPECT_EQ(UnadjustedLogit(6, 4.0F, request, state), 4.0F);
}

TEST(SamplerTest, VeryLowTemperatureIsGreedy) {
  SamplingParams params;
  params.temperature = 1e-6F;
  for (const float top_p : {1.0F, 0.5F}) {
    params.top_p = top_p;
    EXPECT_EQ(SampleAt(params, {0.5F, 2.0F, -1.0F, 1.99F}, 3).token, 1);
  }
}

TEST(SamplerTest, TellsLogitsThatOverflowed) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  HeadState state = InitialHeadState();
  EXPECT_FALSE(HasFiniteLogits(state));
  state.sum_exp = 1.5;
  for (const float bad : {kInfinity, -kInfinity, kNan, 1e35F}) {
    state.max_logit = bad;
    EXPECT_FALSE(HasFiniteLogits(state)) << bad;
  }
  state.max_logit = -30.0F;
  EXPECT_TRUE(HasFiniteLogits(state));
}

TEST(SamplerTest, SortsNanBehindEverything) {
  const std::vector<float> logits = {1.0F, std::numeric_limits<float>::quiet_NaN(), 3.0F, -2.0F};
  const std::vector<Candidate> sorted = SortedCandidates(logits);
  EXPECT_EQ(sorted[0].token, 2);
  EXPECT_EQ(sorted[1].token, 0);
  EXPECT_EQ(sorted[2].token, 3);
  EXPECT_EQ(sorted[3].token, 1);
}

TEST(SamplerTest, NoiseDependsOnSeedRequestChoiceAndPositionAlone) {
  SamplingParams params;
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    for (uint64_t request = 0; request < 100; ++request) {
      for (int64_t position = 0; position < 10; ++position) {
        params.seed = seed;
        params.request_key = request / 10;
        params.choice = static_cast<uint32_t>(request % 10);
        const uint64_t key = MakeDrawRequest(params, position).noise_key;
        EXPECT_EQ(key, MakeDrawRequest(params, position).noise_key);
        keys.insert(key);
      }
    }
  }
  EXPECT_EQ(keys.size(), 10000U);
}

}  // namespace
}  // namespace nightshift
