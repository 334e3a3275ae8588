// What requests have in common is computed once: the same tokens and logprob bits as when each
// computes its own, whatever comes between.
#include <algorithm>
#include <bit>
#include <numeric>
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "tests/support/engine_runs.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

EngineOptions TinyOptions(const std::string& model, ComputeType compute_type) {
  EngineOptions options;
  options.pack_path = TinyPackWithTokenizer(model);
  options.compute_type = compute_type;
  options.num_threads = 2;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.weight_budget_bytes = INT64_MAX;  // all in memory: what is left are KV pages
  options.max_block_requests = 64;
  options.max_sweep_tokens = 512;
  return options;
}

std::unique_ptr<Engine> Create(const EngineOptions& options) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_OK(engine);
  return std::move(engine).value();
}

// The smallest budget that Create accepts, and `pages` more KV pages than it then has.
EngineOptions WithPages(EngineOptions options, int64_t pages) {
  const EngineInfo info = Create(options)->info();
  options.memory_budget_bytes = 1;
  const std::string message(Engine::Create(options).status().message());
  options.memory_budget_bytes = std::stoll(message.substr(message.find("at least ") + 9)) +
                                pages * (info.kv_budget_bytes / info.kv_budget_pages);
  return options;
}

std::vector<int32_t> RandomTokens(std::mt19937& generator, int64_t count) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (int32_t& token : tokens) {
    token = std::uniform_int_distribution<int32_t>(3, 119)(generator);
  }
  return tokens;
}

EngineRequest Request(uint64_t id, std::vector<int32_t> prompt, int64_t max_output_tokens = 4) {
  EngineRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.max_output_tokens = max_output_tokens;
  request.sampling.ignore_eos = true;
  request.sampling.request_key = id;
  return request;
}

// `common` tokens that all have, and `own` tokens of this one.
EngineRequest BeginsAlike(uint64_t id, int64_t common, int64_t own, int64_t max_output_tokens = 4) {
  std::mt19937 of_all(5);
  std::mt19937 of_one(static_cast<uint32_t>(100 + id));
  std::vector<int32_t> prompt = RandomTokens(of_all, common);
  const std::vector<int32_t> rest = RandomTokens(of_one, own);
  prompt.insert(prompt.end(), rest.begin(), rest.end());
  return Request(id, std::move(prompt), max_output_tokens);
}

// Prompts that begin like others for any number of tokens, several choices of one prompt, and prompts
// whose log-probabilities are wanted.
std::vector<EngineRequest> TreeOfRequests(uint64_t count, size_t longest_prompt) {
  std::mt19937 generator(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  std::vector<EngineRequest> requests;
  for (uint64_t id = 0; id < count; ++id) {
    std::vector<int32_t> prompt;
    if (id % 5 != 0) {
      const std::vector<int32_t>& other =
          requests[static_cast<size_t>(draw(0, static_cast<int64_t>(id) - 1))].prompt;
      const int64_t most = static_cast<int64_t>(other.size());
      prompt.assign(other.begin(), other.begin() + (id % 5 == 1 ? most : draw(most / 2, most)));
    }
    if (id % 5 != 1) {
      const std::vector<int32_t> own = RandomTokens(generator, draw(1, 90));
      prompt.insert(prompt.end(), own.begin(), own.end());
    }
    prompt.resize(std::min(prompt.size(), longest_prompt));
    EngineRequest request = Request(id, prompt, draw(1, 25));
    request.sampling.ignore_eos = false;
    request.sampling.temperature = id % 2 == 0 ? 0.0F : 0.8F;
    request.sampling.choice = static_cast<uint32_t>(id % 5 == 1 ? 1 : 0);
    request.sampling.want_logprobs = true;
    request.sampling.top_logprobs = 2;
    if (id % 7 == 3) {
      request.sampling.prompt_logprobs = 1;
    }
    requests.push_back(request);
  }
  return requests;
}

struct Model {
  const char* name;
  ComputeType compute_type;
};

class PrefixSharingTest : public testing::TestWithParam<Model> {
 protected:
  EngineOptions Options(int64_t prompt_chunk_tokens, bool share = true) {
    EngineOptions options = TinyOptions(GetParam().name, GetParam().compute_type);
    options.prompt_chunk_tokens = prompt_chunk_tokens;
    options.share_prefixes = share;
    return options;
  }
};

TEST_P(PrefixSharingTest, SameBitsAsWhenEachComputesItsOwn) {
  const std::vector<EngineRequest> requests = TreeOfRequests(40, 119);
  const RunReport own = RunToEnd(*Create(Options(0, false)), requests, {.block = 1});
  EXPECT_EQ(own.shared_tokens, 0);
  const auto expect_same = [&](const RunReport& report) {
    for (const auto& [id, outcome] : own.outcomes) {
      EXPECT_TRUE(report.outcomes.at(id) == outcome) << "request " << id;
    }
    EXPECT_GT(report.shared_tokens, 900);
  };
  {
    SCOPED_TRACE("one by one");
    const RunReport report = RunToEnd(*Create(Options(0)), requests, {.block = 1});
    expect_same(report);
    EXPECT_EQ(report.prompt_tokens + report.shared_tokens, own.prompt_tokens);
    EXPECT_EQ(report.told_tokens, report.shared_tokens);
  }
  {
    SCOPED_TRACE("all together, chunks of 50");
    expect_same(RunToEnd(*Create(Options(50)), requests, {.block = 64}));
  }
  {
    SCOPED_TRACE("blocks of 9, chunks of 16, suspended");
    const RunReport report = RunToEnd(*Create(Options(16)), requests,
                                      {.block = 9, .suspend_every_sweeps = 4, .seed = 3});
    EXPECT_GT(report.suspended, 20);
    expect_same(report);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, PrefixSharingTest,
    testing::Values(Model{"llama", ComputeType::kBF16}, Model{"opt", ComputeType::kF32},
                    Model{"mistral", ComputeType::kF32}, Model{"qwen2_sliding", ComputeType::kF32},
                    Model{"qwen3", ComputeType::kBF16}, Model{"gemma2", ComputeType::kBF16},
                    Model{"gemma3", ComputeType::kF32}, Model{"phi3", ComputeType::kF32},
                    Model{"olmo2", ComputeType::kF32}, Model{"granite", ComputeType::kF32},
                    Model{"stablelm", ComputeType::kF32}, Model{"gpt_neox", ComputeType::kF32},
                    Model{"falcon", ComputeType::kF32}, Model{"mixtral", ComputeType::kBF16},
                    Model{"qwen3_moe", ComputeType::kF32}),
    [](const testing::TestParamInfo<Model>& one) {
      return std::string(one.param.name) + "_" + ComputeTypeName(one.param.compute_type);
    });

// Memory for little more than one request: pages run out, are given to others and are taken again.
TEST(PrefixSharingMemoryTest, SameBitsWhenPagesRunOut) {
  for (const std::string model : {"llama", "mistral", "gemma3"}) {
    SCOPED_TRACE(model);
    std::vector<EngineRequest> requests;
    for (int64_t id = 0; id < 8; ++id) {
      // Longer outputs than admission counts.
      requests.push_back(BeginsAlike(static_cast<uint64_t>(id), 68, 1 + id, 180));
    }
    requests.back().sampling.prompt_logprobs = 0;
    EngineOptions options = TinyOptions(model, ComputeType::kF32);
    options.prompt_chunk_tokens = 16;
    options.share_prefixes = false;
    const Outcomes expected = RunToEnd(*Create(options), requests, {.block = 64}).outcomes;
    options.share_prefixes = true;
    int64_t evicted = 0;
    for (const int64_t pages : {4, 10}) {
      const RunReport report = RunToEnd(*Create(WithPages(options, pages)), requests,
                                        {.block = 64, .suspend_every_sweeps = pages == 4 ? 11 : 0});
      EXPECT_EQ(report.outcomes, expected) << pages;
      evicted += report.evicted;
    }
    EXPECT_TRUE(evicted > 0 || model == "mistral");  // whose windows take two pages each
  }
}

TEST(PrefixSharingMemoryTest, ACommonBeginningIsComputedOnce) {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 0; id < 16; ++id) {
    requests.push_back(BeginsAlike(id, 150, 40));
  }
  const EngineOptions options = TinyOptions("llama", ComputeType::kF32);
  const RunReport report = RunToEnd(*Create(options), requests, {.block = 16});
  EXPECT_EQ(report.shared_tokens, 15 * 128);
  EXPECT_EQ(report.prompt_tokens, 190 + 15 * 62);
  // The others wait one sweep for the first.
  EXPECT_EQ(report.sweeps, 1 + 2 + 3);
}

TEST(PrefixSharingMemoryTest, ChoicesOfARequestComputeItsPromptOnce) {
  std::vector<EngineRequest> requests;
  for (uint64_t choice = 0; choice < 5; ++choice) {
    EngineRequest request = BeginsAlike(7, 0, 128);  // whole pages: the last token is computed
    request.id = choice;
    request.sampling.choice = static_cast<uint32_t>(choice);
    request.sampling.temperature = 1.0F;
    requests.push_back(request);
  }
  const RunReport report =
      RunToEnd(*Create(TinyOptions("llama", ComputeType::kF32)), requests, {.block = 5});
  EXPECT_EQ(report.prompt_tokens, 128 + 4 * 32);
  EXPECT_NE(report.outcomes.at(0).tokens, report.outcomes.at(1).tokens);
}

// The choices of each golden prompt as requests of their own that score what is behind it, or all.
std::vector<EngineRequest> ScoredChoices(const nlohmann::json& cases, bool score_all) {
  std::vector<EngineRequest> requests;
  for (const nlohmann::json& one : cases) {
    for (const nlohmann::json& choice : one["choices"]) {
      std::vector<int32_t> tokens = one["prompt"];
      const int64_t prompt_tokens = static_cast<int64_t>(tokens.size());
      for (const nlohmann::json& token : choice) {
        tokens.push_back(token.get<int32_t>());
      }
      requests.push_back(Request(requests.size(), std::move(tokens), 0));
      requests.back().sampling.prompt_logprobs = 2;
      requests.back().sampling.scored_from = score_all ? 0 : prompt_tokens;
    }
  }
  return requests;
}

// Goldens: tests/data/make_choice_oracles.py.
TEST(ScoredChoicesTest, AreWhatTheGoldenSaysAndTheBitsOfScoringEachAlone) {
  for (const std::string model : {"llama", "mistral"}) {
    SCOPED_TRACE(model);
    const nlohmann::json cases =
        GoldenCases(std::string(TEST_DATA_DIR) + "/choices/" + model + ".json");
    ASSERT_EQ(cases.size(), 5U);
    const std::vector<EngineRequest> requests = ScoredChoices(cases, false);
    const EngineOptions options = TinyOptions(model, ComputeType::kF32);
    const Outcomes alone =
        RunToEnd(*Create(options), ScoredChoices(cases, true), {.block = 1}).outcomes;
    const RunReport report = RunToEnd(*Create(options), requests, {});
    EngineOptions chunked = options;
    chunked.prompt_chunk_tokens = 16;
    const RunReport cut =
        RunToEnd(*Create(chunked), requests, {.block = 7, .suspend_every_sweeps = 5});
    EXPECT_EQ(cut.outcomes, report.outcomes);
    EXPECT_GT(cut.suspended, 0);
    size_t id = 0;
    for (const nlohmann::json& one : cases) {
      for (const std::vector<double> golden : one["logprobs"]) {
        const std::vector<uint32_t>& bits = report.outcomes.at(id).prompt_logprob_bits;
        ASSERT_EQ(bits.size(), 3 * golden.size());  // each with two alternatives
        for (size_t i = 0; i < golden.size(); ++i) {
          EXPECT_NEAR(static_cast<double>(std::bit_cast<float>(bits[3 * i])), golden[i], 1e-4);
        }
        const std::vector<uint32_t>& whole = alone.at(id).prompt_logprob_bits;
        EXPECT_TRUE(std::equal(bits.rbegin(), bits.rend(), whole.rbegin())) << id;
        ++id;
      }
    }
  }
}

TEST(ScoredChoicesTest, OneRequestTellsOfAllTokensThatMayComeNext) {
  const nlohmann::json cases = GoldenCases(std::string(TEST_DATA_DIR) + "/choices/llama.json");
  for (const int64_t chunk : {0, 32}) {
    EngineOptions options = TinyOptions("llama", ComputeType::kF32);
    options.prompt_chunk_tokens = chunk;
    for (const nlohmann::json& one : cases) {
      EngineRequest request = Request(1, one["prompt"].get<std::vector<int32_t>>(), 0);
      request.sampling.prompt_logprobs = 0;
      request.sampling.scored_from = static_cast<int64_t>(request.prompt.size());
      request.prompt.push_back(one["choices"][0][0].get<int32_t>());
      request.sampling.last_token_rivals = {one["choices"][1][0].get<int32_t>(),
                                            one["choices"][4][0].get<int32_t>()};
      const RunReport report = RunToEnd(*Create(options), {request}, {});
      const std::vector<uint32_t>& bits = report.outcomes.at(1).prompt_logprob_bits;
      ASSERT_EQ(bits.size(), 3U);
      for (const auto& [i, choice] : {std::pair(0, 0), std::pair(1, 1), std::pair(2, 4)}) {
        EXPECT_NEAR(static_cast<double>(std::bit_cast<float>(bits[static_cast<size_t>(i)])),
                    one["logprobs"][static_cast<size_t>(choice)][0].get<double>(), 1e-4);
      }
      EXPECT_EQ(report.prompt_tokens, static_cast<int64_t>(one["prompt"].size()));
    }
  }
  EngineRequest wrong = Request(1, {5, 6}, 0);
  wrong.sampling.prompt_logprobs = 0;
  wrong.sampling.last_token_rivals = {331};
  EXPECT_THAT(Create(TinyOptions("llama", ComputeType::kF32))->Admit({wrong})[0].status,
              StatusIs(absl::StatusCode::kInvalidArgument, "last_token_rivals"));
}

TEST(ScoredChoicesTest, ComputeTheirPromptOnceAndNoRowThatNobodyAsksFor) {
  const nlohmann::json cases = GoldenCases(std::string(TEST_DATA_DIR) + "/choices/llama.json");
  const nlohmann::json one = nlohmann::json::array({cases.back()});  // 150 tokens, six choices
  const RunReport report =
      RunToEnd(*Create(TinyOptions("llama", ComputeType::kF32)), ScoredChoices(one, false), {});
  EXPECT_EQ(report.shared_tokens, 5 * 128);
  // 22 rows each behind the shared pages for the first of a choice's tokens, one for each more.
  EXPECT_EQ(report.prompt_tokens, 128 + 6 * 22 + 0 + 0 + 1 + 4 + 39 + 0);
}

// Prompts that nothing comes behind hold the keys of one layer, and none between sweeps.
TEST(ScoredPromptsTest, TakePagesForOneLayerAtATime) {
  for (const std::string model : {"llama", "mistral", "gemma3", "mixtral"}) {
    SCOPED_TRACE(model);
    std::vector<EngineRequest> requests;
    for (uint64_t id = 0; id < 12; ++id) {
      requests.push_back(BeginsAlike(id, 70, 26 + static_cast<int64_t>(id), 0));
      requests.back().sampling.prompt_logprobs = 1;
    }
    EngineOptions options = WithPages(TinyOptions(model, ComputeType::kF32), 2);
    options.max_sweep_tokens = 400;
    options.max_batch_tokens = 64;
    EngineOptions chunked = options;
    chunked.prompt_chunk_tokens = 32;  // keeps its keys for the next chunk
    const std::unique_ptr<Engine> kept = Create(chunked);
    kept->Admit(requests);
    const std::unique_ptr<Engine> engine = Create(options);
    engine->Admit(requests);
    EXPECT_GT(engine->num_held(), kept->num_held());
    const int64_t held = engine->num_held();
    ASSERT_OK_AND_ASSIGN(const SweepResult sweep, engine->Sweep());
    EXPECT_GT(sweep.kv_pages, 0);
    EXPECT_EQ(engine->num_held(), held - static_cast<int64_t>(sweep.records.size()));
    EXPECT_EQ(engine->Usage().kv_pages, 0);
    EXPECT_EQ(RunToEnd(*Create(options), requests, {}).outcomes,
              RunToEnd(*Create(chunked), requests, {}).outcomes);
  }
}

TEST(PrefixSharingMemoryTest, TheNextOneComputesWhenTheFirstIsTakenOut) {
  EngineOptions options = TinyOptions("llama", ComputeType::kF32);
  options.prompt_chunk_tokens = 40;
  const std::unique_ptr<Engine> engine = Create(options);
  for (uint64_t id = 0; id < 3; ++id) {
    ASSERT_OK(engine->Admit({BeginsAlike(id, 180, 20)})[0].status);
  }
  const auto sweep = [&] {
    const absl::StatusOr<SweepResult> result = engine->Sweep();
    EXPECT_OK(result);
    return std::pair(result->prompt_tokens, result->shared_tokens);
  };
  EXPECT_EQ(sweep(), std::pair(int64_t{40}, int64_t{0}));
  EXPECT_EQ(sweep(), std::pair(int64_t{40}, int64_t{0}));
  engine->Retire({0});
  // 64 tokens each are there; the second goes on and the third waits.
  EXPECT_EQ(sweep(), std::pair(int64_t{40}, int64_t{128}));
  const std::vector<EngineRequest> suspended = engine->Suspend({1});
  ASSERT_EQ(suspended.size(), 1U);
  EXPECT_EQ(sweep(), std::pair(int64_t{40}, int64_t{32}));
  ASSERT_OK(engine->Admit({suspended[0]})[0].status);
  EXPECT_EQ(sweep(), std::pair(int64_t{40}, int64_t{128}));
}

TEST(PrefixSharingMemoryTest, SharedPagesCountOnceWhenOthersAskForRoom) {
  EngineOptions options = TinyOptions("llama", ComputeType::kF32);
  std::vector<EngineRequest> requests;
  for (uint64_t id = 0; id < 12; ++id) {
    requests.push_back(BeginsAlike(id, 200, 4, 20));  // 7 stretches, 6 of them in common
  }
  const auto count_admitted = [&](bool share) {
    options.share_prefixes = share;
    const std::unique_ptr<Engine> engine = Create(WithPages(options, 6));
    EXPECT_EQ(engine->info().kv_budget_pages, 14);
    engine->Admit(requests);
    return engine->num_held();
  };
  EXPECT_EQ(count_admitted(false), 2);
  EXPECT_EQ(count_admitted(true), 8);
}

}  // namespace
}  // namespace nightshift
