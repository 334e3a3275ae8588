// Sampling options through the whole engine: penalties, bans and lengths against a dense replay in
// double, log-probabilities of prompts against Hugging Face transformers.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "engine/local_engine.h"
#include "tests/support/engine_runs.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

using absl::StatusCode;

// As golden_logits_test.
constexpr float kTolerance = 1e-4F;

std::unique_ptr<LocalEngine> TinyEngine(const std::string& model, int64_t prompt_chunk_tokens = 0) {
  EngineOptions options;
  options.pack_path = TinyPack(model);
  options.compute_type = ComputeType::kF32;
  options.num_threads = 2;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.prompt_chunk_tokens = prompt_chunk_tokens;
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(options);
  EXPECT_OK(engine);
  return std::move(engine).value();
}

EngineRequest GreedyRequest(uint64_t id, std::vector<int32_t> prompt) {
  EngineRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.sampling.max_output_tokens = 24;
  return request;
}

// The definitions once more, over the whole vocabulary, without bad words and bans.
std::vector<double> PenaliseDensely(const SamplingParams& params, std::span<const float> row,
                                    const std::vector<int32_t>& tokens, size_t prompt_tokens) {
  std::vector<double> logits(row.begin(), row.end());
  for (const LogitBias& bias : params.logit_bias) {
    logits[static_cast<size_t>(bias.token)] += static_cast<double>(bias.bias);
  }
  for (const int32_t token : std::set<int32_t>(tokens.begin(), tokens.end())) {
    double& logit = logits[static_cast<size_t>(token)];
    const double penalty = static_cast<double>(params.repetition_penalty);
    logit = logit > 0.0 ? logit / penalty : logit * penalty;
  }
  std::map<int32_t, int> counts;
  for (size_t i = prompt_tokens; i < tokens.size(); ++i) {
    ++counts[tokens[i]];
  }
  for (const auto& [token, count] : counts) {
    logits[static_cast<size_t>(token)] -= static_cast<double>(params.frequency_penalty) * count +
                                          static_cast<double>(params.presence_penalty);
  }
  return logits;
}

double LogSoftmaxAt(std::span<const float> logits, int32_t token) {
  const double highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (const float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - highest);
  }
  return static_cast<double>(logits[static_cast<size_t>(token)]) - highest - std::log(sum);
}

class SamplingOptionsTest : public testing::Test {
 protected:
  // Asserts that each token of the greedy output is the best of the densely penalised logits, and
  // that its log-probability is of the model's own.
  void ExpectGreedyReplay(const EngineRequest& request) {
    const Outcome outcome = RunToEnd(*engine_, {request}, {}).outcomes.at(request.id);
    ASSERT_EQ(outcome.tokens.size(), 24U);
    std::vector<int32_t> all = request.prompt;
    all.insert(all.end(), outcome.tokens.begin(), outcome.tokens.end());
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, engine_->ForwardLogits(all));
    const size_t vocabulary = static_cast<size_t>(engine_->info().vocabulary);
    std::vector<int32_t> tokens = request.prompt;
    for (size_t step = 0; step < outcome.tokens.size(); ++step) {
      const std::span<const float> row(logits.data() + (tokens.size() - 1) * vocabulary,
                                       vocabulary);
      const std::vector<double> penalised =
          PenaliseDensely(request.sampling, row, tokens, request.prompt.size());
      const auto best = std::max_element(penalised.begin(), penalised.end());
      EXPECT_EQ(best - penalised.begin(), outcome.tokens[step]) << "step " << step;
      EXPECT_NEAR(std::bit_cast<float>(outcome.logprob_bits[step]),
                  LogSoftmaxAt(row, outcome.tokens[step]), 1e-5)
          << "step " << step;
      tokens.push_back(outcome.tokens[step]);
    }
  }

  std::vector<int32_t> Greedy(const EngineRequest& request) {
    return RunToEnd(*engine_, {request}, {}).outcomes.at(request.id).tokens;
  }

  std::unique_ptr<LocalEngine> engine_ = TinyEngine("llama");
  const std::vector<int32_t> prompt_ = {17, 90, 4, 90, 250, 33, 8};
};

TEST_F(SamplingOptionsTest, GreedyFollowsEachPenaltyAndReportsTheModelsOwnLogprobs) {
  const std::vector<int32_t> plain = Greedy(GreedyRequest(1, prompt_));
  const auto change = [&](void (*set)(SamplingParams&)) {
    EngineRequest request = GreedyRequest(1, prompt_);
    set(request.sampling);
    ExpectGreedyReplay(request);
    return Greedy(request);
  };
  EXPECT_NE(change([](SamplingParams& s) { s.repetition_penalty = 1.8F; }), plain);
  EXPECT_NE(change([](SamplingParams& s) { s.repetition_penalty = 0.6F; }), plain);
  EXPECT_NE(change([](SamplingParams& s) { s.frequency_penalty = 1.5F; }), plain);
  EXPECT_NE(change([](SamplingParams& s) { s.presence_penalty = -1.0F; }), plain);
  EXPECT_NE(change([](SamplingParams& s) { s.logit_bias = {{144, -5.0F}, {41, 2.5F}}; }), plain);
  EXPECT_NE(change([](SamplingParams& s) {
              s.logit_bias = {{40, 3.0F}, {90, -4.0F}};
              s.repetition_penalty = 1.3F;
              s.frequency_penalty = 0.7F;
              s.presence_penalty = 0.4F;
            }),
            plain);
}

TEST_F(SamplingOptionsTest, BadWordsNeverComeAndOthersAreUntouched) {
  EngineRequest request = GreedyRequest(1, prompt_);
  const std::vector<int32_t> plain = Greedy(request);
  request.sampling.bad_words = {{plain[0]}, {plain[4], plain[5]}};
  const std::vector<int32_t> tokens = Greedy(request);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), plain[0]), 0);
  const std::vector<int32_t> pair = {plain[4], plain[5]};
  EXPECT_EQ(std::search(tokens.begin(), tokens.end(), pair.begin(), pair.end()), tokens.end());
  request.sampling.bad_words = {{plain[2], plain[3]}};
  const std::vector<int32_t> later = Greedy(request);
  EXPECT_TRUE(std::equal(plain.begin(), plain.begin() + 3, later.begin()));
  EXPECT_NE(later[3], plain[3]);
}

TEST_F(SamplingOptionsTest, EndTokensAndStopsWaitForTheLeastLength) {
  EngineRequest request = GreedyRequest(1, prompt_);
  const std::vector<int32_t> plain = Greedy(request);
  request.sampling.stop_tokens = {plain[0], plain[3]};
  EXPECT_EQ(Greedy(request).size(), 1U);
  request.sampling.min_output_tokens = 6;
  const std::vector<int32_t> tokens = Greedy(request);
  ASSERT_GE(tokens.size(), 6U);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_NE(tokens[i], plain[0]);
    EXPECT_NE(tokens[i], plain[3]);
  }
}

TEST_F(SamplingOptionsTest, TheModelsOwnEndIsATokenLikeOthersWhenIgnored) {
  EngineRequest request = GreedyRequest(1, prompt_);
  request.sampling.logit_bias = {{2, 100.0F}};  // the model's end token
  EXPECT_EQ(Greedy(request), std::vector<int32_t>{2});
  request.sampling.min_output_tokens = 3;
  const std::vector<int32_t> late = Greedy(request);
  EXPECT_EQ(late.size(), 4U);
  EXPECT_EQ(late.back(), 2);
  request.sampling.ignore_eos = true;
  EXPECT_EQ(Greedy(request), std::vector<int32_t>(24, 2));
}

TEST_F(SamplingOptionsTest, ChoicesDifferAndTheFirstIsWhatOneAloneGives) {
  EngineRequest request = GreedyRequest(1, prompt_);
  request.sampling.temperature = 1.0F;
  request.sampling.seed = 5;
  std::set<std::vector<int32_t>> texts = {Greedy(request)};
  for (uint32_t choice = 1; choice < 5; ++choice) {
    request.sampling.choice = choice;
    texts.insert(Greedy(request));
  }
  EXPECT_EQ(texts.size(), 5U);
}

TEST_F(SamplingOptionsTest, RefusesIdsOutsideTheVocabularyAndBansThatLeaveNothing) {
  EngineRequest request = GreedyRequest(1, prompt_);
  request.sampling.logit_bias = {{331, 1.0F}};
  EXPECT_THAT(engine_->Admit({request})[0].status,
              StatusIs(StatusCode::kInvalidArgument, "logit_bias token 0 has id 331"));
  request.sampling.logit_bias.clear();
  request.sampling.bad_words = {{4, 400}};
  EXPECT_THAT(engine_->Admit({request})[0].status,
              StatusIs(StatusCode::kInvalidArgument, "bad_words token 1 has id 400"));
  request.sampling.bad_words.clear();
  for (int32_t token = 0; token < 331; ++token) {
    request.sampling.bad_words.push_back({token});
  }
  EXPECT_THAT(engine_->Admit({request})[0].status,
              StatusIs(StatusCode::kInvalidArgument, "all 331 tokens"));
  // All but one, and but the model's own end: the one comes every time.
  request.sampling.bad_words.erase(request.sampling.bad_words.begin() + 77);
  EXPECT_EQ(Greedy(request), std::vector<int32_t>(24, 77));
  request.sampling.temperature = 1.0F;
  request.sampling.top_p = 0.5F;
  EXPECT_EQ(Greedy(request), std::vector<int32_t>(24, 77));
}

class PromptLogprobsTest : public testing::TestWithParam<const char*> {};

TEST_P(PromptLogprobsTest, AgreeWithTheGoldensAndHoldTheBestAlternatives) {
  const std::unique_ptr<LocalEngine> engine = TinyEngine(GetParam(), 7);
  const nlohmann::json cases =
      GoldenCases(std::string(TEST_DATA_DIR) + "/tiny/" + GetParam() + "/golden.json");
  ASSERT_EQ(cases.size(), 4U);
  std::vector<EngineRequest> requests;
  for (const nlohmann::json& one : cases) {
    EngineRequest request = GreedyRequest(requests.size(), one["prompt"]);
    request.sampling.max_output_tokens = requests.size() % 2 == 0 ? 0 : 2;
    request.sampling.prompt_logprobs = 3;
    requests.push_back(request);
  }
  const RunReport report = RunToEnd(*engine, requests, {});
  for (size_t i = 0; i < cases.size(); ++i) {
    const Outcome& outcome = report.outcomes.at(i);
    EXPECT_EQ(outcome.tokens.size(), i % 2 == 0 ? 0U : 2U);
    EXPECT_EQ(outcome.finish_reason, FinishReason::kLength);
    const nlohmann::json& golden = cases[i]["prompt_logprobs"];
    // The first token has one number, the others their own and three alternatives'.
    ASSERT_EQ(outcome.prompt_logprob_bits.size(), 4 * golden.size() - 3);
    for (size_t token = 1; token < golden.size(); ++token) {
      const size_t at = 4 * token - 3;
      EXPECT_NEAR(std::bit_cast<float>(outcome.prompt_logprob_bits[at]), golden[token].get<float>(),
                  kTolerance)
          << cases[i]["name"] << " position " << token;
      for (size_t best = at + 1; best < at + 3; ++best) {
        EXPECT_GE(std::bit_cast<float>(outcome.prompt_logprob_bits[best]),
                  std::bit_cast<float>(outcome.prompt_logprob_bits[best + 1]));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tiny, PromptLogprobsTest,
                         testing::Values("opt", "opt_postnorm", "llama", "llama_tied", "gemma2",
                                         "gpt_neox"),
                         [](const testing::TestParamInfo<const char*>& model) {
                           return std::string(model.param);
                         });

TEST(ScoringTest, APromptOfTheWholeContextCanBeScored) {
  const std::unique_ptr<LocalEngine> engine = TinyEngine("llama", 64);
  EngineRequest request =
      GreedyRequest(1, std::vector<int32_t>(static_cast<size_t>(engine->info().context_tokens), 9));
  EXPECT_THAT(engine->Admit({request})[0].status,
              StatusIs(StatusCode::kInvalidArgument, "leaves room for no output"));
  request.sampling.max_output_tokens = 0;
  EXPECT_THAT(engine->Admit({request})[0].status,
              StatusIs(StatusCode::kInvalidArgument, "max_output_tokens is 0"));
  request.sampling.prompt_logprobs = 0;
  const Outcome outcome = RunToEnd(*engine, {request}, {}).outcomes.at(1);
  EXPECT_EQ(outcome.prompt_logprob_bits.size(), request.prompt.size());
  EXPECT_TRUE(outcome.tokens.empty());
}

}  // namespace
}  // namespace nightshift
