// The engine against Hugging Face transformers in float32 (tests/data/make_oracles.py).
#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "engine/local_engine.h"
#include "tests/support/engine_runs.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

// A second implementation in float64 is within 1.6e-5 of the goldens; f32 sums of at most a few
// hundred terms over three layers stay well below this.
constexpr float kTolerance = 1e-4F;
// transformers itself in bfloat16 changes no greedy choice whose margin is above this.
constexpr double kBf16Margin = 0.25;

// Of a model, or of the model that a GGUF file was converted from.
std::string GoldenFolder(const std::string& model) {
  return std::string(TEST_DATA_DIR) + "/tiny/" + model.substr(0, model.find('.'));
}

std::unique_ptr<LocalEngine> TinyEngine(const std::string& model, ComputeType compute_type) {
  EngineOptions options;
  options.pack_path = TinyPack(model);
  options.compute_type = compute_type;
  options.num_threads = 2;
  options.memory_budget_bytes = int64_t{64} << 20;
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(options);
  EXPECT_OK(engine);
  return std::move(engine).value();
}

double LogSoftmaxAt(std::span<const float> logits, int32_t token) {
  const double highest = static_cast<double>(*std::max_element(logits.begin(), logits.end()));
  double sum = 0.0;
  for (float logit : logits) {
    sum += std::exp(static_cast<double>(logit) - highest);
  }
  return static_cast<double>(logits[static_cast<size_t>(token)]) - highest - std::log(sum);
}

class GoldenLogitsTest : public testing::TestWithParam<const char*> {};

TEST_P(GoldenLogitsTest, PromptLogitsAndLogprobsAreWithin1e4InF32) {
  const std::unique_ptr<LocalEngine> engine = TinyEngine(GetParam(), ComputeType::kF32);
  const size_t vocabulary = static_cast<size_t>(engine->info().vocabulary);
  const auto tensors = GoldenTensors(GoldenFolder(GetParam()) + "/golden.safetensors");
  const nlohmann::json cases = GoldenCases(GoldenFolder(GetParam()) + "/golden.json");
  ASSERT_EQ(cases.size(), 4U);
  for (const nlohmann::json& one : cases) {
    const std::string name = one["name"];
    const std::vector<int32_t> prompt = one["prompt"];
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, engine->ForwardLogits(prompt));
    ASSERT_EQ(logits.size(), prompt.size() * vocabulary);
    const std::vector<float>& golden = tensors.at(name + ".last_logits");
    ASSERT_EQ(golden.size(), vocabulary);
    float worst = 0.0F;
    for (size_t i = 0; i < vocabulary; ++i) {
      worst = std::max(worst, std::abs(logits[(prompt.size() - 1) * vocabulary + i] - golden[i]));
    }
    EXPECT_LE(worst, kTolerance) << name;
    for (size_t i = 1; i < prompt.size(); ++i) {
      const std::span<const float> row(logits.data() + (i - 1) * vocabulary, vocabulary);
      EXPECT_NEAR(LogSoftmaxAt(row, prompt[i]), one["prompt_logprobs"][i].get<double>(), kTolerance)
          << name << " position " << i;
    }
  }
}

TEST_P(GoldenLogitsTest, GreedyContinuationsAreEqualInF32) {
  const std::unique_ptr<LocalEngine> engine = TinyEngine(GetParam(), ComputeType::kF32);
  const nlohmann::json cases = GoldenCases(GoldenFolder(GetParam()) + "/golden.json");
  std::vector<EngineRequest> requests;
  for (const nlohmann::json& one : cases) {
    EngineRequest request;
    request.id = requests.size();
    request.prompt = one["prompt"].get<std::vector<int32_t>>();
    request.sampling.temperature = 0.0F;
    request.sampling.max_output_tokens = 24;
    requests.push_back(request);
  }
  const RunReport report = RunToEnd(*engine, requests, {});
  for (size_t i = 0; i < cases.size(); ++i) {
    const Outcome& outcome = report.outcomes.at(i);
    // Every recorded margin is above 0.05, far above the tolerance of a logit.
    EXPECT_EQ(outcome.tokens, cases[i]["greedy"].get<std::vector<int32_t>>()) << cases[i]["name"];
    EXPECT_EQ(outcome.finish_reason, FinishReason::kLength);
    EXPECT_EQ(outcome.kept_tokens, 24);
    for (size_t step = 0; step < outcome.logprob_bits.size(); ++step) {
      EXPECT_NEAR(std::bit_cast<float>(outcome.logprob_bits[step]),
                  cases[i]["greedy_logprobs"][step].get<float>(), kTolerance);
    }
  }
}

TEST_P(GoldenLogitsTest, Bf16ChoosesTheSameTokenWhereTheMarginAllows) {
  const std::unique_ptr<LocalEngine> engine = TinyEngine(GetParam(), ComputeType::kBF16);
  const size_t vocabulary = static_cast<size_t>(engine->info().vocabulary);
  int compared = 0;
  for (const nlohmann::json& one : GoldenCases(GoldenFolder(GetParam()) + "/golden.json")) {
    const std::vector<int32_t> greedy = one["greedy"];
    std::vector<int32_t> tokens = one["prompt"];
    const size_t prompt_tokens = tokens.size();
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, engine->ForwardLogits(tokens));
    for (size_t step = 0; step < greedy.size(); ++step) {
      if (one["greedy_margins"][step].get<double>() <= kBf16Margin) {
        continue;
      }
      const auto row =
          logits.begin() + static_cast<std::ptrdiff_t>((prompt_tokens - 1 + step) * vocabulary);
      const auto best = std::max_element(row, row + static_cast<std::ptrdiff_t>(vocabulary));
      EXPECT_EQ(best - row, greedy[step]) << one["name"] << " step " << step;
      ++compared;
    }
  }
  EXPECT_GT(compared, 48);
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, GoldenLogitsTest,
    testing::Values("opt", "opt_postnorm", "llama", "llama3_rope", "llama_linear_rope",
                    "llama_tied", "llama_yarn_rope", "mistral", "qwen2", "qwen3", "gemma2",
                    "gemma3", "gemma3_linear", "phi3", "olmo2", "granite", "stablelm", "gpt_neox",
                    "falcon", "mixtral", "qwen3_moe", "qwen3_moe_sparse", "qwen3_moe_step",
                    "qwen2_sliding", "phi3_longrope", "stablelm_parallel", "gpt_neox_sequential",
                    "falcon_heads"),
    [](const testing::TestParamInfo<const char*>& model) { return std::string(model.param); });

INSTANTIATE_TEST_SUITE_P(TinyGguf, GoldenLogitsTest,
                         testing::Values("llama_yarn_rope.gguf", "mistral.gguf", "qwen2.gguf",
                                         "qwen3.gguf", "gemma2.gguf", "gemma3_linear.gguf",
                                         "phi3.gguf", "olmo2.gguf", "granite.gguf", "stablelm.gguf",
                                         "gpt_neox.gguf", "falcon.gguf", "mixtral.gguf",
                                         "qwen3_moe_sparse.gguf"),
                         [](const testing::TestParamInfo<const char*>& model) {
                           const std::string name = model.param;
                           return name.substr(0, name.find('.'));
                         });

TEST(ForwardLogitsTest, PromptChunksAndBatchesDoNotChangeABit) {
  for (const char* model : {"opt_postnorm", "llama", "mixtral", "qwen3_moe"}) {
    const std::unique_ptr<LocalEngine> whole = TinyEngine(model, ComputeType::kF32);
    EngineOptions options;
    options.pack_path = TinyPack(model);
    options.compute_type = ComputeType::kF32;
    options.num_threads = 1;
    options.memory_budget_bytes = int64_t{64} << 20;
    options.max_block_requests = 4;
    options.max_sweep_tokens = 31;
    options.max_batch_tokens = 5;
    options.prompt_chunk_tokens = 13;
    ASSERT_OK_AND_ASSIGN(const std::unique_ptr<LocalEngine> cut, LocalEngine::Create(options));
    const nlohmann::json cases = GoldenCases(GoldenFolder(model) + "/golden.json");
    const std::vector<int32_t> prompt = cases.back()["prompt"];
    ASSERT_OK_AND_ASSIGN(const std::vector<float> expected, whole->ForwardLogits(prompt));
    ASSERT_OK_AND_ASSIGN(const std::vector<float> actual, cut->ForwardLogits(prompt));
    EXPECT_EQ(actual, expected) << model;
  }
}

}  // namespace
}  // namespace nightshift
