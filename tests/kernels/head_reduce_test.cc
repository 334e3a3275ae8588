#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/noise.h"
#include "tests/kernels/ops_test_support.h"

namespace nightshift {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

HeadState StartState() {
  return {.max_logit = -kInfinity,
          .sum_exp = 0.0,
          .tempered_sum_exp = 0.0,
          .best_noisy = -kInfinity,
          .noisy_winner = -1,
          .noisy_winner_logit = 0.0F,
          .candidates = {},
          .unadjusted = {}};
}

std::vector<float> RandomLogits(int64_t count, uint64_t seed) {
  std::vector<float> logits = naive::RandomValues(count, seed);
  for (float& logit : logits) {
    logit *= 12.0F;
  }
  return logits;
}

class HeadReduceTest : public OpsTargetTest {
 protected:
  // Reduces one row, its vocabulary cut into shards of `shard` tokens.
  static HeadState Reduce(const std::vector<float>& logits, const HeadRequest& request,
                          int64_t shard) {
    const auto device = CreateDevice(1);
    HeadState state = StartState();
    const auto count = static_cast<int64_t>(logits.size());
    for (int64_t first = 0; first < count; first += shard) {
      const auto begin = logits.begin() + first;
      const int64_t part = std::min(shard, count - first);
      Matrix view(part, std::vector<float>(begin, begin + part));
      device->ops(ComputeType::kF32)
          .HeadReduce({.logits = view.view(),
                       .first_token = static_cast<int32_t>(first),
                       .requests = {&request, 1},
                       .states = {&state, 1}});
    }
    return state;
  }

  static HeadState Reduce(const std::vector<float>& logits, const HeadRequest& request) {
    return Reduce(logits, request, static_cast<int64_t>(logits.size()));
  }
};

TEST_P(HeadReduceTest, SumsAgreeWithTheOracle) {
  for (const int64_t count : {1, 2, 63, 64, 65, 500, 5000}) {
    const std::vector<float> logits = RandomLogits(count, 1);
    const HeadState state = Reduce(logits, {.temperature = 0.7F});
    const float max = *std::max_element(logits.begin(), logits.end());
    EXPECT_EQ(state.max_logit, max);
    double sum = 0.0;
    double tempered_sum = 0.0;
    for (const float logit : logits) {
      const double relative = static_cast<double>(logit) - static_cast<double>(max);
      sum += std::exp(relative);
      tempered_sum += std::exp(relative / static_cast<double>(0.7F));
    }
    // 64 terms a tile in f32, each a difference of at most 24 (35 tempered) rounded, then exp.
    EXPECT_NEAR(state.sum_exp, sum, (64.0 + 24.0 + 8.0) * naive::kF32Rounding * sum);
    EXPECT_NEAR(state.tempered_sum_exp, tempered_sum,
                (64.0 + 3.0 * 35.0 + 8.0) * naive::kF32Rounding * tempered_sum);
  }
}

TEST_P(HeadReduceTest, GivesTheSameBitsForEveryCutIntoShards) {
  const std::vector<float> logits = RandomLogits(1000, 2);
  const HeadRequest request = {.temperature = 1.3F, .noise_key = 99, .num_candidates = 17};
  const HeadState whole = Reduce(logits, request);
  for (const int64_t shard : {64, 128, 640}) {
    const HeadState cut = Reduce(logits, request, shard);
    EXPECT_EQ(cut.max_logit, whole.max_logit);
    EXPECT_EQ(cut.sum_exp, whole.sum_exp);
    EXPECT_EQ(cut.tempered_sum_exp, whole.tempered_sum_exp);
    EXPECT_EQ(cut.best_noisy, whole.best_noisy);
    EXPECT_EQ(cut.noisy_winner, whole.noisy_winner);
    ASSERT_EQ(cut.candidates.size(), whole.candidates.size());
    for (size_t i = 0; i < cut.candidates.size(); ++i) {
      EXPECT_EQ(cut.candidates[i].token, whole.candidates[i].token);
    }
  }
}

TEST_P(HeadReduceTest, GivesARowTheSameBitsAloneAndAmongOthers) {
  const auto device = CreateDevice(2);
  const int64_t count = 300;
  for (const int64_t rows : {7, 64, 513}) {
    std::vector<float> logits = RandomLogits(rows * count, 3);
    Matrix matrix(count, logits);
    std::vector<HeadState> states(static_cast<size_t>(rows), StartState());
    std::vector<HeadRequest> requests;
    for (int64_t row = 0; row < rows; ++row) {
      requests.push_back({.row = row,
                          .temperature = row % 3 == 0 ? 0.0F : 0.9F,
                          .noise_key = static_cast<uint64_t>(row),
                          .num_candidates = 1 + static_cast<int32_t>(row % 5)});
    }
    device->ops(ComputeType::kF32)
        .HeadReduce({.logits = matrix.view(), .requests = requests, .states = states});
    for (const int64_t row : {int64_t{0}, int64_t{4}, rows - 1}) {
      const auto index = static_cast<size_t>(row);
      HeadRequest request = requests[index];
      request.row = 0;
      const HeadState alone = Reduce(matrix.Row(row), request);
      EXPECT_EQ(states[index].sum_exp, alone.sum_exp);
      EXPECT_EQ(states[index].tempered_sum_exp, alone.tempered_sum_exp);
      EXPECT_EQ(states[index].noisy_winner, alone.noisy_winner);
      EXPECT_EQ(states[index].candidates.size(), alone.candidates.size());
    }
  }
}

TEST_P(HeadReduceTest, WinnerIsTheArgmaxOfLogitOverTemperaturePlusNoise) {
  for (uint64_t key = 0; key < 200; ++key) {
    const std::vector<float> logits = RandomLogits(333, key);
    const float temperature = 0.3F + static_cast<float>(key % 7);
    int32_t expected = -1;
    float best = -kInfinity;
    for (int32_t token = 0; token < 333; ++token) {
      const float value = logits[static_cast<size_t>(token)] / temperature + NoiseAt(key, token);
      if (value > best) {
        best = value;
        expected = token;
      }
    }
    const HeadState state = Reduce(logits, {.temperature = temperature, .noise_key = key}, 128);
    EXPECT_EQ(state.noisy_winner, expected);
    EXPECT_EQ(state.best_noisy, best);
    EXPECT_EQ(state.noisy_winner_logit, logits[static_cast<size_t>(expected)]);
  }
}

TEST_P(HeadReduceTest, GreedyWinnerIsTheLowestTokenOfTheHighestLogit) {
  std::vector<float> logits(200, -1.0F);
  logits[150] = 2.0F;
  logits[70] = 2.0F;
  logits[71] = 2.0F;
  EXPECT_EQ(Reduce(logits, {}).noisy_winner, 70);
  EXPECT_EQ(Reduce(logits, {}, 64).noisy_winner, 70);
}

TEST_P(HeadReduceTest, KeepsTheBestCandidatesInOrderWithTiesToTheLowerToken) {
  std::vector<float> logits = RandomLogits(700, 4);
  for (float& logit : logits) {
    logit = std::round(logit);  // many ties
  }
  std::vector<Candidate> sorted;
  for (int32_t token = 0; token < 700; ++token) {
    sorted.push_back({token, logits[static_cast<size_t>(token)]});
  }
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Candidate& a, const Candidate& b) { return a.logit > b.logit; });
  for (const int32_t wanted : {1, 2, 20, 64, 300, 700, 5000}) {
    for (const int64_t shard : {64, 256, 700}) {
      const HeadState state = Reduce(logits, {.num_candidates = wanted}, shard);
      ASSERT_EQ(state.candidates.size(), static_cast<size_t>(std::min(wanted, 700)));
      for (size_t i = 0; i < state.candidates.size(); ++i) {
        ASSERT_EQ(state.candidates[i].token, sorted[i].token) << wanted << " wanted, place " << i;
        ASSERT_EQ(state.candidates[i].logit, sorted[i].logit);
      }
    }
  }
}

TEST_P(HeadReduceTest, PassesOverMaskedTokens) {
  std::vector<float> logits(130, -kInfinity);
  logits[129] = -3.0F;
  const HeadState state =
      Reduce(logits, {.temperature = 1.0F, .noise_key = 5, .num_candidates = 4}, 64);
  EXPECT_EQ(state.noisy_winner, 129);
  EXPECT_EQ(state.sum_exp, 1.0);
  EXPECT_EQ(state.tempered_sum_exp, 1.0);
  ASSERT_EQ(state.candidates.size(), 1U);
  EXPECT_EQ(state.candidates[0].token, 129);
}

TEST_P(HeadReduceTest, ShowsNaNsInTheSumAndNowhereElse) {
  std::vector<float> logits = RandomLogits(100, 6);
  logits[3] = kNaN;
  logits[99] = kNaN;
  const HeadState state = Reduce(logits, {.num_candidates = 100}, 64);
  EXPECT_TRUE(std::isnan(state.sum_exp));
  EXPECT_EQ(state.candidates.size(), 98U);
  EXPECT_EQ(state.candidates[0].logit, state.max_logit);
  EXPECT_EQ(Reduce({kNaN, kNaN}, {}).noisy_winner, -1);
}

void ExpectSameBits(const HeadState& a, const HeadState& b) {
  EXPECT_EQ(a.max_logit, b.max_logit);
  EXPECT_EQ(a.sum_exp, b.sum_exp);
  EXPECT_EQ(a.tempered_sum_exp, b.tempered_sum_exp);
  EXPECT_EQ(a.best_noisy, b.best_noisy);
  EXPECT_EQ(a.noisy_winner, b.noisy_winner);
  EXPECT_EQ(a.noisy_winner_logit, b.noisy_winner_logit);
  ASSERT_EQ(a.candidates.size(), b.candidates.size());
  for (size_t i = 0; i < a.candidates.size(); ++i) {
    EXPECT_EQ(a.candidates[i].token, b.candidates[i].token);
    EXPECT_EQ(a.candidates[i].logit, b.candidates[i].logit);
  }
}

TEST_P(HeadReduceTest, AdjustedLogitsGiveTheBitsOfLogitsThatWereSoFromTheStart) {
  std::vector<LogitAdjustment> adjustments;
  for (const int32_t token : {0, 1, 63, 64, 127, 130, 131, 640, 998, 999}) {
    adjustments.push_back({.token = token,
                           .bias = token % 3 == 0 ? -kInfinity : 1.5F,
                           .repetition = token % 2 == 0 ? 1.7F : 0.6F,
                           .penalty = static_cast<float>(token % 5) - 2.0F});
  }
  const std::vector<float> logits = RandomLogits(1000, 8);
  std::vector<float> adjusted = logits;
  for (const LogitAdjustment& adjustment : adjustments) {
    float& logit = adjusted[static_cast<size_t>(adjustment.token)];
    logit = AdjustLogit(adjustment, logit);
  }
  for (const float temperature : {0.0F, 0.8F}) {
    const HeadRequest plain = {.temperature = temperature, .noise_key = 5, .num_candidates = 990};
    HeadRequest request = plain;
    request.adjustments = adjustments;
    for (const int64_t shard : {64, 640, 1000}) {
      const HeadState state = Reduce(logits, request, shard);
      ExpectSameBits(state, Reduce(adjusted, plain));
      ASSERT_EQ(state.unadjusted.size(), adjustments.size());
      for (size_t i = 0; i < adjustments.size(); ++i) {
        EXPECT_EQ(state.unadjusted[i], logits[static_cast<size_t>(adjustments[i].token)]);
      }
    }
  }
}

TEST_P(HeadReduceTest, SeveralRequestsReadOneRow) {
  const auto device = CreateDevice(2);
  Matrix matrix(500, RandomLogits(3 * 500, 9));
  const std::vector<LogitAdjustment> ban = {{.token = 77, .bias = -kInfinity}};
  const std::vector<HeadRequest> requests = {{.row = 2, .num_candidates = 3},
                                             {.row = 2, .temperature = 0.5F, .adjustments = ban},
                                             {.row = 0, .num_candidates = 2}};
  std::vector<HeadState> states(3, StartState());
  device->ops(ComputeType::kF32)
      .HeadReduce({.logits = matrix.view(), .requests = requests, .states = states});
  for (size_t i = 0; i < requests.size(); ++i) {
    HeadRequest alone = requests[i];
    alone.row = 0;
    ExpectSameBits(states[i], Reduce(matrix.Row(requests[i].row), alone));
  }
}

TEST(AdjustLogitTest, AddsTheBiasThenPenalisesRepetitionThenSubtracts) {
  EXPECT_EQ(AdjustLogit({.bias = 1.0F, .repetition = 2.0F, .penalty = 0.5F}, 3.0F), 1.5F);
  EXPECT_EQ(AdjustLogit({.bias = 1.0F, .repetition = 2.0F, .penalty = 0.5F}, -3.0F), -4.5F);
  EXPECT_EQ(AdjustLogit({.bias = -kInfinity, .repetition = 2.0F, .penalty = -9.0F}, 3.0F),
            -kInfinity);
  EXPECT_EQ(AdjustLogit({.token = 4}, -0.37F), -0.37F);
}

INSTANTIATE_ON_OPS_TARGETS(HeadReduceTest);

// Independent values: SplitMix64 and the logarithms by mpmath with 40 digits.
TEST(NoiseTest, IsTheGumbelQuantileOfTheSplitMixHash) {
  struct Golden {
    uint64_t key;
    int32_t token;
    double uniform;
    float noise;
  };
  constexpr Golden kGoldens[] = {{0, 0, 0.88331080821364260647, 2.08684367697F},
                                 {1234567, 0, 0.35007954202140811883, -0.048404268198F},
                                 {1234567, 1, 0.17364409667091262879, -0.560042837269F},
                                 {~uint64_t{0}, 128255, 0.30429462161609566184, -0.173750678903F},
                                 {42, 2147483647, 0.64814222396641485435, 0.835528763048F}};
  for (const Golden& golden : kGoldens) {
    EXPECT_EQ(UniformAt(golden.key, golden.token), golden.uniform);
    EXPECT_FLOAT_EQ(NoiseAt(golden.key, golden.token), golden.noise);
  }
}

TEST(NoiseTest, FollowsTheGumbelDistribution) {
  constexpr int kCount = 100000;
  double sum = 0.0;
  int below_median = 0;
  for (int32_t token = 0; token < kCount; ++token) {
    const double noise = static_cast<double>(NoiseAt(77, token));
    ASSERT_TRUE(std::isfinite(noise));
    sum += noise;
    if (noise < 0.36651292) ++below_median;
  }
  // Mean 0.5772, deviation 1.2825 / sqrt(kCount) = 0.0041; the median splits evenly, 0.0016.
  EXPECT_NEAR(sum / kCount, 0.57721566, 5 * 0.0041);
  EXPECT_NEAR(static_cast<double>(below_median) / kCount, 0.5, 5 * 0.0016);
}

TEST(NoiseTest, DrawsTokensWithTheirProbabilities) {
  const float logits[] = {1.0F, 0.0F, -1.0F};
  int counts[3] = {};
  constexpr int kDraws = 50000;
  for (uint64_t key = 0; key < kDraws; ++key) {
    int32_t best = 0;
    for (int32_t token = 1; token < 3; ++token) {
      const bool wins =
          logits[token] + NoiseAt(key * 7919, token) > logits[best] + NoiseAt(key * 7919, best);
      if (wins) best = token;
    }
    ++counts[best];
  }
  const double total = std::exp(1.0) + 1.0 + std::exp(-1.0);
  for (int token = 0; token < 3; ++token) {
    const double probability = std::exp(static_cast<double>(logits[token])) / total;
    const double deviation = std::sqrt(probability * (1.0 - probability) / kDraws);
    EXPECT_NEAR(static_cast<double>(counts[token]) / kDraws, probability, 5.0 * deviation);
  }
}

}  // namespace
}  // namespace nightshift
