// SmolLM2-135M-Instruct (Q4_1, tied embedding) against transformers in float32 on the same
// dequantised weights (tests/data/make_text_oracles.py).
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <random>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

#include "engine/local_engine.h"
#include "tests/support/engine_runs.h"
#include "tests/support/golden.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr int64_t kBudgetBytes = int64_t{1} << 30;
// float64 on the same weights is within 5e-5 of the golden logits. Ours are f32 sums of up to 1536
// terms in another order over 30 layers, of the same size of error (4e-5 measured on logprobs).
constexpr double kTolerance = 3e-4;
// Below this margin the two best logits may change places within the tolerance of both.
constexpr double kF32Margin = 2 * kTolerance;
// transformers in bfloat16 moves single margins by up to 0.57.
constexpr double kBf16Margin = 0.6;

nlohmann::json Cases(const char* file) {
  return GoldenCases(std::string(TEST_DATA_DIR) + "/smollm2/" + file);
}

// `type` as SmolLm2Pack takes it.
std::unique_ptr<LocalEngine> SmolLm2Engine(ComputeType compute_type,
                                           int64_t prompt_chunk_tokens = 512,
                                           const std::string& type = "",
                                           std::optional<DType> kv_type = std::nullopt) {
  const absl::StatusOr<std::string> pack = SmolLm2Pack(type);
  if (!pack.ok()) {
    ADD_FAILURE() << pack.status();
    return nullptr;
  }
  EngineOptions options;
  options.pack_path = *pack;
  options.compute_type = compute_type;
  options.kv_type = kv_type;
  options.memory_budget_bytes = kBudgetBytes;
  options.max_sweep_tokens = 1024;
  options.prompt_chunk_tokens = prompt_chunk_tokens;
  absl::StatusOr<std::unique_ptr<LocalEngine>> engine = LocalEngine::Create(options);
  EXPECT_OK(engine);
  return engine.ok() ? std::move(engine).value() : nullptr;
}

EngineRequest GreedyRequest(uint64_t id, std::vector<int32_t> prompt, int64_t max_output_tokens) {
  EngineRequest request;
  request.id = id;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0.0F;
  request.sampling.max_output_tokens = max_output_tokens;
  return request;
}

// Steps of a golden continuation up to the first margin that is not above `limit`.
size_t ClearSteps(const nlohmann::json& one, double limit) {
  const std::vector<double> margins = one["greedy_margins"];
  const auto end = std::find_if(margins.begin(), margins.end(),
                                [limit](double margin) { return margin <= limit; });
  return static_cast<size_t>(end - margins.begin());
}

int64_t ResidentBytes() {
  std::istringstream status(ReadWholeFile("/proc/self/status"));
  std::string word;
  while (status >> word) {
    if (word == "VmRSS:") {
      int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
  }
  return -1;
}

TEST(SmolLm2Test, GreedyContinuationsAreEqualInF32WithinTheMemoryBudget) {
  [[maybe_unused]] const int64_t before = ResidentBytes();
  const std::unique_ptr<LocalEngine> engine = SmolLm2Engine(ComputeType::kF32);
  ASSERT_NE(engine, nullptr);
  const nlohmann::json cases = Cases("greedy.json");
  ASSERT_EQ(cases.size(), 16U);
  std::vector<EngineRequest> requests;
  for (const nlohmann::json& one : cases) {
    requests.push_back(
        GreedyRequest(requests.size(), one["prompt"].get<std::vector<int32_t>>(), 64));
  }
  const RunReport report = RunToEnd(*engine, requests, {});
  size_t compared = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::vector<int32_t> golden = cases[i]["greedy"];
    const Outcome& outcome = report.outcomes.at(i);
    const size_t steps = ClearSteps(cases[i], kF32Margin);
    compared += steps;
    ASSERT_GE(outcome.tokens.size(), steps) << cases[i]["name"];
    EXPECT_TRUE(std::equal(golden.begin(), golden.begin() + static_cast<std::ptrdiff_t>(steps),
                           outcome.tokens.begin()))
        << cases[i]["name"];
    for (size_t step = 0; step < steps; ++step) {
      EXPECT_NEAR(std::bit_cast<float>(outcome.logprob_bits[step]),
                  cases[i]["greedy_logprobs"][step].get<float>(), kTolerance);
    }
    if (steps == golden.size() && cases[i]["finish"] == "stop") {
      EXPECT_EQ(outcome.finish_reason, FinishReason::kStop);
      EXPECT_EQ(outcome.kept_tokens, static_cast<int64_t>(golden.size()) - 1);
    }
  }
  EXPECT_GT(compared, 600U);
#ifndef __SANITIZE_ADDRESS__
  EXPECT_LT(ResidentBytes() - before, kBudgetBytes + (int64_t{100} << 20));
#endif
}

TEST(SmolLm2Test, LogprobsOfTextsAgreeInF32) {
  const std::unique_ptr<LocalEngine> engine = SmolLm2Engine(ComputeType::kF32);
  ASSERT_NE(engine, nullptr);
  const size_t vocabulary = static_cast<size_t>(engine->info().vocabulary);
  const auto tensors = GoldenTensors(std::string(TEST_DATA_DIR) + "/smollm2/logits.safetensors");
  const nlohmann::json cases = Cases("logprobs.json");
  ASSERT_EQ(cases.size(), 4U);
  for (const nlohmann::json& one : cases) {
    const std::string name = one["name"];
    const std::vector<int32_t> prompt = one["prompt"];
    ASSERT_OK_AND_ASSIGN(const std::vector<float> logits, engine->ForwardLogits(prompt));
    const std::span<const float> last(logits.data() + (prompt.size() - 1) * vocabulary, vocabulary);
    const std::vector<float>& golden = tensors.at(name + ".last_logits");
    double worst_logit = 0.0;
    for (size_t i = 0; i < vocabulary; ++i) {
      worst_logit = std::max(worst_logit, static_cast<double>(std::abs(last[i] - golden[i])));
    }
    double worst_logprob = 0.0;
    for (size_t i = 1; i < prompt.size(); ++i) {
      const std::span<const float> row(logits.data() + (i - 1) * vocabulary, vocabulary);
      const double highest = static_cast<double>(*std::max_element(row.begin(), row.end()));
      double sum = 0.0;
      for (float logit : row) {
        sum += std::exp(static_cast<double>(logit) - highest);
      }
      const double logprob =
          static_cast<double>(row[static_cast<size_t>(prompt[i])]) - highest - std::log(sum);
      worst_logprob =
          std::max(worst_logprob, std::abs(logprob - one["prompt_logprobs"][i].get<double>()));
    }
    EXPECT_LT(worst_logit, kTolerance) << name;
    EXPECT_LT(worst_logprob, kTolerance) << name;
  }
}

TEST(SmolLm2Test, PromptLogprobsOfTextsAgreeInF32) {
  const std::unique_ptr<LocalEngine> engine = SmolLm2Engine(ComputeType::kF32, 100);
  ASSERT_NE(engine, nullptr);
  const nlohmann::json cases = Cases("logprobs.json");
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < 2; ++i) {
    requests.push_back(GreedyRequest(i, cases[i]["prompt"].get<std::vector<int32_t>>(), 0));
    requests.back().sampling.prompt_logprobs = 0;
  }
  const RunReport report = RunToEnd(*engine, requests, {});
  for (size_t i = 0; i < requests.size(); ++i) {
    const std::vector<uint32_t>& bits = report.outcomes.at(i).prompt_logprob_bits;
    const nlohmann::json& golden = cases[i]["prompt_logprobs"];
    ASSERT_EQ(bits.size(), golden.size());
    for (size_t token = 1; token < bits.size(); ++token) {
      EXPECT_NEAR(std::bit_cast<float>(bits[token]), golden[token].get<float>(), kTolerance)
          << cases[i]["name"] << " position " << token;
    }
  }
}

TEST(SmolLm2Test, Bf16ChoosesTheSameTokenWhereTheMarginAllows) {
  const std::unique_ptr<LocalEngine> engine = SmolLm2Engine(ComputeType::kBF16);
  ASSERT_NE(engine, nullptr);
  const size_t vocabulary = static_cast<size_t>(engine->info().vocabulary);
  int compared = 0;
  for (const nlohmann::json& one : Cases("greedy.json")) {
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
  EXPECT_GT(compared, 400);
}

// Multiplied as they are stored, in 4 and 8 bits, or expanded when they were imported: the same
// values in the same order.
TEST(SmolLm2Test, PackedWeightsAnswerExactlyAsExpandedOnesInF32) {
  const nlohmann::json cases = Cases("greedy.json");
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < 3; ++i) {
    requests.push_back(GreedyRequest(i, cases[i]["prompt"].get<std::vector<int32_t>>(), 12));
    requests.back().sampling.top_logprobs = 3;
  }
  std::map<std::string, Outcomes> outcomes;
  std::map<std::string, int64_t> weight_bytes;
  for (const std::string type : {"", "f32"}) {
    const std::unique_ptr<LocalEngine> engine = SmolLm2Engine(ComputeType::kF32, 512, type);
    ASSERT_NE(engine, nullptr);
    outcomes[type] = RunToEnd(*engine, requests, {}).outcomes;
    weight_bytes[type] = engine->info().weight_bytes;
  }
  EXPECT_EQ(outcomes[""], outcomes["f32"]);
  EXPECT_LT(5 * weight_bytes[""], weight_bytes["f32"]);
}

// Of the four texts, by the log-probabilities of their tokens.
double Perplexity(LocalEngine& engine) {
  std::vector<EngineRequest> requests;
  for (const nlohmann::json& one : Cases("logprobs.json")) {
    requests.push_back(
        GreedyRequest(requests.size(), one["prompt"].get<std::vector<int32_t>>(), 0));
    requests.back().sampling.prompt_logprobs = 0;
  }
  double sum = 0.0;
  double tokens = 0.0;
  for (const auto& [id, outcome] : RunToEnd(engine, requests, {}).outcomes) {
    for (size_t i = 1; i < outcome.prompt_logprob_bits.size(); ++i) {
      sum += static_cast<double>(std::bit_cast<float>(outcome.prompt_logprob_bits[i]));
      tokens += 1.0;
    }
  }
  EXPECT_GT(tokens, 600.0);
  return std::exp(-sum / tokens);
}

// Weights that lost bits already, on another grid: 8 bits change next to nothing. 4 bits in groups
// of 64 cost so small a model far more than FlexGen's models: in numpy, with another quantiser of
// the same format, 38.7 %, and values moved at random by as much cost 31 % (check_int4_loss.py).
constexpr double kInt4Loss = 1.3871;

TEST(SmolLm2Test, RequantisedWeightsPredictTextsNearlyAsWell) {
  std::map<std::string, double> perplexities;
  for (const std::string type : {"", "int8", "int4"}) {
    const std::unique_ptr<LocalEngine> engine = SmolLm2Engine(ComputeType::kBF16, 512, type);
    ASSERT_NE(engine, nullptr);
    perplexities[type] = Perplexity(*engine);
    RecordProperty("perplexity" + type, std::to_string(perplexities[type]));
  }
  EXPECT_NEAR(perplexities["int8"], perplexities[""], perplexities[""] * 0.005);
  EXPECT_NEAR(perplexities["int4"], perplexities[""] * kInt4Loss, perplexities[""] * 0.015);
}

TEST(SmolLm2Test, PackedKeysAndValuesPredictTextsNearlyAsWell) {
  std::map<std::string, double> perplexities;
  for (const auto& [name, kv_type] :
       {std::pair{"plain", std::optional<DType>()}, std::pair{"int8", std::optional(DType::kU8G64)},
        std::pair{"int4", std::optional(DType::kU4G64)}}) {
    const std::unique_ptr<LocalEngine> engine =
        SmolLm2Engine(ComputeType::kBF16, 512, "", kv_type);
    ASSERT_NE(engine, nullptr);
    perplexities[name] = Perplexity(*engine);
    RecordProperty(std::string("perplexity_kv_") + name, std::to_string(perplexities[name]));
  }
  EXPECT_NEAR(perplexities["int8"], perplexities["plain"], perplexities["plain"] * 0.002);
  // Keys of so small a model lose more to 4 bits than FlexGen's: numpy on the same weights, in f32,
  // goes from 23.08 to 23.85 with keys transformed as ours are, to 26.9 without.
  EXPECT_NEAR(perplexities["int4"], perplexities["plain"], perplexities["plain"] * 0.05);
}

TEST(SmolLm2Test, InputsOfEightBitsPredictTextsNearlyAsWell) {
  const std::unique_ptr<LocalEngine> bf16 = SmolLm2Engine(ComputeType::kBF16, 512);
  const std::unique_ptr<LocalEngine> int8 = SmolLm2Engine(ComputeType::kInt8, 512);
  ASSERT_NE(bf16, nullptr);
  ASSERT_NE(int8, nullptr);
  EXPECT_EQ(int8->info().numeric_mode, "int8/device");
  const double perplexity = Perplexity(*bf16);
  EXPECT_NEAR(Perplexity(*int8), perplexity, perplexity * 0.01);
}

// The least budget holds 512 of the model's 8192 context tokens.
TEST(SmolLm2Test, ARequestThatCannotFitAloneIsRefusedWithNumbers) {
  const absl::StatusOr<std::string> pack = SmolLm2Pack();
  ASSERT_OK(pack);
  EngineOptions options;
  options.pack_path = *pack;
  options.weight_budget_bytes = INT64_MAX;
  options.memory_budget_bytes = 1;
  const std::string message(Engine::Create(options).status().message());
  options.memory_budget_bytes = std::stoll(message.substr(message.find("at least ") + 9));
  ASSERT_OK_AND_ASSIGN(const std::unique_ptr<Engine> engine, Engine::Create(options));
  EXPECT_EQ(engine->info().kv_budget_pages, 16);
  EXPECT_THAT(engine->Admit({GreedyRequest(1, std::vector<int32_t>(500, 5), 13)})[0].status,
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "take 17 kv pages of 32 positions; the whole budget is 16 pages"));
  EXPECT_OK(engine->Admit({GreedyRequest(1, std::vector<int32_t>(500, 5), 12)})[0].status);
}

TEST(SmolLm2Test, SameBitsAloneAndInABlock) {
  const nlohmann::json cases = Cases("greedy.json");
  std::vector<EngineRequest> requests;
  for (size_t i = 0; i < 8; ++i) {
    EngineRequest request = GreedyRequest(i, cases[i]["prompt"].get<std::vector<int32_t>>(),
                                          static_cast<int64_t>(4 + i));
    if (i % 2 == 1) {
      request.sampling.temperature = 0.9F;
      request.sampling.top_p = i % 4 == 1 ? 0.95F : 1.0F;
      request.sampling.seed = i;
    }
    request.sampling.top_logprobs = 3;
    requests.push_back(request);
  }
  for (const ComputeType compute_type :
       {ComputeType::kF32, ComputeType::kBF16, ComputeType::kInt8}) {
    const std::unique_ptr<LocalEngine> whole = SmolLm2Engine(compute_type);
    ASSERT_NE(whole, nullptr);
    const Outcomes alone = RunToEnd(*whole, requests, {.block = 1}).outcomes;
    EXPECT_EQ(RunToEnd(*whole, requests, {.block = 8}).outcomes, alone);
    const std::unique_ptr<LocalEngine> chunked = SmolLm2Engine(compute_type, 16);
    ASSERT_NE(chunked, nullptr);
    std::reverse(requests.begin(), requests.end());
    const RunReport suspended =
        RunToEnd(*chunked, requests, {.block = 5, .suspend_every_sweeps = 6});
    EXPECT_GT(suspended.suspended, 0);
    EXPECT_EQ(suspended.outcomes, alone);
  }
}

}  // namespace
}  // namespace nightshift
