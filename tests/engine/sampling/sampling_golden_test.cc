// Adjusted logits and draws against a dense implementation in numpy (tests/data/
// make_sampling_oracles.py): through the head's reduction, as the engine does it.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/sampling/logit_adjuster.h"
#include "engine/sampling/sampler.h"
#include "kernels/device.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

SamplingParams ParamsOf(const nlohmann::json& options) {
  SamplingParams params;
  params.temperature = options["temperature"];
  params.min_p = options["min_p"];
  params.top_k = options["top_k"];
  params.top_p = options["top_p"];
  params.repetition_penalty = options["repetition_penalty"];
  params.frequency_penalty = options["frequency_penalty"];
  params.presence_penalty = options["presence_penalty"];
  params.min_output_tokens = options["min_tokens"];
  params.max_output_tokens = 100;
  for (const nlohmann::json& bias : options["logit_bias"]) {
    params.logit_bias.push_back({bias[0].get<int32_t>(), bias[1].get<float>()});
  }
  params.bad_words = options["bad_words"].get<std::vector<std::vector<int32_t>>>();
  return params;
}

class SamplingGoldenTest : public testing::Test {
 protected:
  void SetUp() override {
    cases_ = GoldenCases(std::string(TEST_DATA_DIR) + "/sampling/cases.json");
    ASSERT_EQ(cases_.size(), 40U);
    ASSERT_OK_AND_ASSIGN(device_, CreateCpuDevice(1));
  }

  // Folds the whole row in chunks of one tile.
  HeadState Reduce(const std::vector<float>& logits, const HeadRequest& request) {
    HeadState state = InitialHeadState();
    const int64_t count = static_cast<int64_t>(logits.size());
    std::vector<float> copy = logits;
    device_->ops(ComputeType::kF32)
        .HeadReduce({.logits = {copy.data(), 1, count, count},
                     .requests = {&request, 1},
                     .states = {&state, 1}});
    return state;
  }

  Candidate DrawAt(const SamplingParams& params, std::span<const LogitAdjustment> adjustments,
                   const std::vector<float>& logits, int64_t position) {
    HeadRequest request = MakeDrawRequest(params, position);
    request.adjustments = adjustments;
    HeadState state = Reduce(logits, request);
    const int64_t vocabulary = static_cast<int64_t>(logits.size());
    std::optional<Candidate> drawn = Draw(params, request, state, vocabulary);
    if (!drawn.has_value()) {
      std::vector<float> adjusted = logits;
      for (const LogitAdjustment& adjustment : adjustments) {
        float& logit = adjusted[static_cast<size_t>(adjustment.token)];
        logit = AdjustLogit(adjustment, logit);
      }
      state.candidates = SortedCandidates(adjusted);
      drawn = Draw(params, request, state, vocabulary);
    }
    EXPECT_TRUE(drawn.has_value());
    Candidate token = drawn.value_or(Candidate());
    token.logit = UnadjustedLogit(token.token, token.logit, request, state);
    return token;
  }

  nlohmann::json cases_;
  std::unique_ptr<Device> device_;
};

LogitAdjuster AdjusterOf(const nlohmann::json& one, const SamplingParams& params) {
  LogitAdjuster adjuster(params, one["options"]["end_tokens"].get<std::vector<int32_t>>(),
                         one["prompt"].get<std::vector<int32_t>>());
  for (const int32_t token : one["output"].get<std::vector<int32_t>>()) {
    adjuster.Append(token);
  }
  return adjuster;
}

TEST_F(SamplingGoldenTest, AdjustedLogitsAgree) {
  for (const nlohmann::json& one : cases_) {
    const SamplingParams params = ParamsOf(one["options"]);
    ASSERT_OK(params.Validate());
    LogitAdjuster adjuster = AdjusterOf(one, params);
    std::vector<float> logits = one["logits"].get<std::vector<float>>();
    for (const LogitAdjustment& adjustment : adjuster.Next()) {
      float& logit = logits[static_cast<size_t>(adjustment.token)];
      logit = AdjustLogit(adjustment, logit);
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      const nlohmann::json& golden = one["adjusted"][i];
      if (golden.is_null()) {
        EXPECT_EQ(logits[i], -kInfinity) << one["name"] << " token " << i;
      } else {
        // Three roundings of values below 32.
        EXPECT_NEAR(logits[i], golden.get<float>(), 4e-6F) << one["name"] << " token " << i;
      }
    }
  }
}

// Pearson's statistic of the draws, rare tokens taken together, less its degrees of freedom in
// deviations (Wilson and Hilferty's approximation).
double DeviationsFrom(const std::vector<double>& probabilities, const std::vector<int>& counts,
                      int draws) {
  constexpr double kLeastExpected = 5.0;
  double statistic = 0.0;
  double rare = 0.0;
  double rare_count = 0.0;
  double terms = 0.0;
  const auto add = [&](double expected, double count) {
    statistic += (count - expected) * (count - expected) / expected;
    terms += 1.0;
  };
  for (size_t i = 0; i < probabilities.size(); ++i) {
    const double expected = probabilities[i] * draws;
    if (expected < kLeastExpected) {
      rare += expected;
      rare_count += counts[i];
    } else {
      add(expected, counts[i]);
    }
  }
  if (rare >= kLeastExpected) {
    add(rare, rare_count);
  }
  if (terms < 2.0) {
    return 0.0;
  }
  const double degrees = terms - 1.0;
  const double variance = 2.0 / (9.0 * degrees);
  return (std::cbrt(statistic / degrees) - (1.0 - variance)) / std::sqrt(variance);
}

TEST_F(SamplingGoldenTest, DrawsFollowTheProbabilities) {
  constexpr int kDraws = 3000;
  int with_choice = 0;
  for (const nlohmann::json& one : cases_) {
    SamplingParams params = ParamsOf(one["options"]);
    params.seed = 99;
    LogitAdjuster adjuster = AdjusterOf(one, params);
    const std::span<const LogitAdjustment> adjustments = adjuster.Next();
    const std::vector<float> logits = one["logits"].get<std::vector<float>>();
    const std::vector<double> probabilities = one["probabilities"].get<std::vector<double>>();
    std::vector<int> counts(logits.size(), 0);
    for (int position = 0; position < kDraws; ++position) {
      const Candidate drawn = DrawAt(params, adjustments, logits, position);
      const size_t token = static_cast<size_t>(drawn.token);
      ASSERT_GT(probabilities[token], 0.0) << one["name"] << " token " << token;
      ASSERT_EQ(drawn.logit, logits[token]);
      ++counts[token];
    }
    with_choice += std::count_if(probabilities.begin(), probabilities.end(),
                                 [](double p) { return p > 0.01; }) > 1;
    // One in 30,000 for a fair sampler, in each of 40 cases.
    EXPECT_LT(DeviationsFrom(probabilities, counts, kDraws), 4.0) << one["name"];
  }
  EXPECT_GE(with_choice, 25);
}

TEST_F(SamplingGoldenTest, LogprobsAreOfTheModelsOwnDistributionWhateverIsAdjusted) {
  for (const nlohmann::json& one : cases_) {
    const std::vector<float> logits = one["logits"].get<std::vector<float>>();
    const std::vector<double> logprobs = one["logprobs"].get<std::vector<double>>();
    const HeadState own = Reduce(logits, MakeReportRequest(5));
    for (size_t i = 0; i < logits.size(); ++i) {
      const TokenLogprob token = Report(static_cast<int32_t>(i), logits[i], own, 5);
      EXPECT_NEAR(token.logprob, logprobs[i], 2e-6) << one["name"] << " token " << i;
    }
  }
}

}  // namespace
}  // namespace nightshift
