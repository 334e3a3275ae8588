// Numbers are part of the contract: a request's tokens and logprob bits do not depend on which
// other requests are in the block, on the order, on prompt chunks or batches, on suspension or
// eviction.
#include <algorithm>
#include <optional>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/engine.h"
#include "tests/support/engine_runs.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr int64_t kBlockRequests = 64;

// Ids that random texts of the test vocabulary have.
int32_t AnyToken(std::mt19937& generator) {
  return std::uniform_int_distribution<int32_t>(3, 299)(generator);
}

// Options that look at the prompt or the output so far: what a suspension has to bring back.
void AddAdjustments(std::mt19937& generator, SamplingParams& sampling) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(generator);
  };
  if (draw(0, 2) == 0) {
    sampling.repetition_penalty = static_cast<float>(draw(5, 20)) / 10.0F;
  }
  if (draw(0, 2) == 0) {
    sampling.presence_penalty = static_cast<float>(draw(-10, 20)) / 10.0F;
    sampling.frequency_penalty = static_cast<float>(draw(-5, 20)) / 10.0F;
  }
  if (draw(0, 2) == 0) {
    for (int i = 0; i < 20; ++i) {
      const float bias = static_cast<float>(draw(-50, 50)) / 10.0F;
      sampling.logit_bias.push_back({AnyToken(generator), bias});
    }
  }
  if (draw(0, 2) == 0) {
    for (int i = 0; i < 40; ++i) {
      sampling.bad_words.push_back({AnyToken(generator)});
      sampling.bad_words.push_back({AnyToken(generator), AnyToken(generator)});
    }
  }
  if (draw(0, 2) == 0) {
    sampling.min_p = static_cast<float>(draw(1, 30)) / 100.0F;
  }
  if (draw(0, 2) == 0) {
    sampling.min_output_tokens = draw(0, static_cast<int>(sampling.max_output_tokens));
  }
  sampling.ignore_eos = draw(0, 3) == 0;
  sampling.choice = static_cast<uint32_t>(draw(0, 2));
  if (draw(0, 3) == 0) {
    sampling.prompt_logprobs = draw(0, 3);
  }
}

SamplingParams RandomSampling(std::mt19937& generator, uint64_t index) {
  const auto draw = [&](int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(generator);
  };
  SamplingParams sampling;
  sampling.max_output_tokens = draw(1, 30);
  sampling.temperature = draw(0, 2) == 0 ? 0.0F : static_cast<float>(draw(2, 15)) / 10.0F;
  sampling.top_p = draw(0, 1) == 0 ? 1.0F : static_cast<float>(draw(10, 99)) / 100.0F;
  sampling.top_k = draw(0, 1) == 0 ? 0 : draw(1, 80);
  sampling.seed = static_cast<uint64_t>(draw(0, 3));
  sampling.request_key = index;
  sampling.want_logprobs = true;
  sampling.top_logprobs = draw(0, 4);
  // Texts of the test vocabulary: see TinyPackWithTokenizer.
  if (draw(0, 1) == 0) {
    sampling.stop = {"aa", "bc", "ce", "dg", "fa", "hi", "kd", "rb", "\xc3\xa4"};
  }
  if (draw(0, 3) == 0) {
    sampling.stop_tokens = {draw(3, 300), draw(3, 300), draw(3, 300)};
  }
  AddAdjustments(generator, sampling);
  return sampling;
}

std::vector<EngineRequest> RandomRequests(int64_t count, int64_t vocabulary) {
  std::mt19937 generator(2024);
  std::vector<EngineRequest> requests;
  for (int64_t i = 0; i < count; ++i) {
    EngineRequest request;
    request.id = static_cast<uint64_t>(1000 + i);
    request.prompt.resize(std::uniform_int_distribution<size_t>(1, 95)(generator));
    for (int32_t& token : request.prompt) {
      token = std::uniform_int_distribution<int32_t>(
          3, static_cast<int32_t>(vocabulary) - 1)(generator);
    }
    request.sampling = RandomSampling(generator, request.id);
    requests.push_back(request);
  }
  return requests;
}

struct Model {
  const char* name;
  ComputeType compute_type;
  int64_t num_requests;
  double sparse_attention = 1.0;
  std::optional<DType> kv_type = {};
};

EngineOptions OptionsOf(const Model& model, int64_t prompt_chunk_tokens, int64_t max_batch_tokens,
                        int num_threads, bool share_prefixes = true) {
  EngineOptions options;
  options.pack_path = TinyPackWithTokenizer(model.name);
  options.compute_type = model.compute_type;
  options.sparse_attention = model.sparse_attention;
  options.kv_type = model.kv_type;
  options.num_threads = num_threads;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.prompt_chunk_tokens = prompt_chunk_tokens;
  options.max_batch_tokens = max_batch_tokens;
  options.max_block_requests = kBlockRequests;
  options.share_prefixes = share_prefixes;
  return options;
}

std::unique_ptr<Engine> CreateEngine(const Model& model, int64_t prompt_chunk_tokens,
                                     int64_t max_batch_tokens, int num_threads,
                                     bool share_prefixes = true) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(
      OptionsOf(model, prompt_chunk_tokens, max_batch_tokens, num_threads, share_prefixes));
  EXPECT_OK(engine);
  return std::move(engine).value();
}

class InvarianceTest : public testing::TestWithParam<Model> {
 protected:
  void ExpectSame(const RunReport& report) {
    ASSERT_EQ(report.outcomes.size(), alone_.size());
    for (const auto& [id, outcome] : alone_) {
      const Outcome& other = report.outcomes.at(id);
      EXPECT_EQ(other.tokens, outcome.tokens) << "request " << id;
      EXPECT_EQ(other.text, outcome.text) << "request " << id;
      EXPECT_EQ(other.logprob_bits, outcome.logprob_bits) << "request " << id;
      EXPECT_EQ(other.prompt_logprob_bits, outcome.prompt_logprob_bits) << "request " << id;
      EXPECT_TRUE(other == outcome) << "request " << id;
    }
  }

  void SetUp() override {
    const std::unique_ptr<Engine> engine = CreateEngine(GetParam(), 0, 512, 1, false);
    requests_ = RandomRequests(GetParam().num_requests, engine->info().vocabulary);
    alone_ = RunToEnd(*engine, requests_, {.block = 1}).outcomes;
    std::mt19937 generator(3);
    shuffled_ = requests_;
    std::shuffle(shuffled_.begin(), shuffled_.end(), generator);
  }

  std::vector<EngineRequest> requests_;
  std::vector<EngineRequest> shuffled_;
  Outcomes alone_;
};

TEST_P(InvarianceTest, SameBitsInEveryBlockOrderChunkAndSuspension) {
  int64_t stops = 0;
  for (const auto& [id, outcome] : alone_) {
    stops += outcome.stop_reason.empty() ? 0 : 1;
  }
  EXPECT_GE(stops, 5) << "too few requests end by a stop string for the test to mean much";
  int64_t scored = 0;
  for (const EngineRequest& request : requests_) {
    const Outcome& outcome = alone_.at(request.id);
    scored += outcome.prompt_logprob_bits.empty() ? 0 : 1;
    EXPECT_EQ(!outcome.prompt_logprob_bits.empty(), request.sampling.prompt_logprobs.has_value());
  }
  EXPECT_GE(scored, 5);
  {
    SCOPED_TRACE("blocks of 7, chunks of 16");
    ExpectSame(RunToEnd(*CreateEngine(GetParam(), 16, 512, 2), shuffled_, {.block = 7}));
  }
  {
    SCOPED_TRACE("block of 64, chunks of 100, batches of 24");
    ExpectSame(RunToEnd(*CreateEngine(GetParam(), 100, 24, 2), shuffled_, {.block = 64}));
  }
  {
    SCOPED_TRACE("block of 64, no chunks, suspended");
    const RunReport report = RunToEnd(*CreateEngine(GetParam(), 0, 512, 2), requests_,
                                      {.block = 64, .suspend_every_sweeps = 5});
    EXPECT_GT(report.suspended, 20);
    ExpectSame(report);
  }
  {
    SCOPED_TRACE("blocks of 7, chunks of 16, suspended");
    ExpectSame(RunToEnd(*CreateEngine(GetParam(), 16, 100, 2), shuffled_,
                        {.block = 7, .suspend_every_sweeps = 9, .seed = 4}));
  }
}

TEST_P(InvarianceTest, SameBitsUnderOnePlanAfterAnother) {
  EngineOptions streamed = OptionsOf(GetParam(), 16, 100, 2);
  streamed.weight_budget_bytes = 0;
  streamed.max_block_requests = 5;
  EngineOptions two_memories = OptionsOf(GetParam(), 40, 24, 2);
  two_memories.tiers.device_budget_bytes = int64_t{32} << 20;
  const RunReport report =
      RunToEnd(*CreateEngine(GetParam(), 100, 24, 2), shuffled_,
               {.block = 16,
                .plan_every_sweeps = 7,
                .plans = {streamed, two_memories, OptionsOf(GetParam(), 0, 512, 1)}});
  EXPECT_GT(report.plans, 6);
  EXPECT_GT(report.suspended, 5);
  ExpectSame(report);
}

std::string NameOf(const testing::TestParamInfo<Model>& one) {
  std::string name =
      absl::StrCat(one.param.name, "_", ComputeTypeName(one.param.compute_type));
  if (one.param.kv_type) absl::StrAppend(&name, "_", DTypeName(*one.param.kv_type));
  if (one.param.sparse_attention < 1.0) name += "_sparse";
  return name;
}

INSTANTIATE_TEST_SUITE_P(Tiny, InvarianceTest,
                         testing::Values(Model{"llama", ComputeType::kF32, 64},
                                         Model{"llama", ComputeType::kBF16, 64},
                                         Model{"opt", ComputeType::kF32, 64},
                                         Model{"opt", ComputeType::kBF16, 64},
                                         Model{"mixtral", ComputeType::kBF16, 64},
                                         Model{"qwen3_moe", ComputeType::kF32, 64}),
                         NameOf);

// The families whose ops or pages differ, with fewer requests.
class FamilyInvarianceTest : public InvarianceTest {};

TEST_P(FamilyInvarianceTest, SameBitsInBlocksOfAnyKind) {
  {
    SCOPED_TRACE("all at one time, chunks of 100, batches of 24");
    ExpectSame(RunToEnd(*CreateEngine(GetParam(), 100, 24, 2), shuffled_, {.block = 64}));
  }
  {
    SCOPED_TRACE("blocks of 7, chunks of 16, suspended");
    const RunReport report = RunToEnd(*CreateEngine(GetParam(), 16, 100, 2), shuffled_,
                                      {.block = 7, .suspend_every_sweeps = 9, .seed = 4});
    EXPECT_GT(report.suspended, 3);
    ExpectSame(report);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Tiny, FamilyInvarianceTest,
    testing::Values(Model{"mistral", ComputeType::kF32, 20}, Model{"qwen2", ComputeType::kF32, 20},
                    Model{"qwen3", ComputeType::kBF16, 20}, Model{"gemma2", ComputeType::kF32, 20},
                    Model{"gemma2", ComputeType::kBF16, 20}, Model{"gemma3", ComputeType::kF32, 20},
                    Model{"phi3", ComputeType::kF32, 20}, Model{"olmo2", ComputeType::kF32, 20},
                    Model{"granite", ComputeType::kBF16, 20},
                    Model{"stablelm", ComputeType::kF32, 20},
                    Model{"gpt_neox", ComputeType::kF32, 20},
                    Model{"falcon", ComputeType::kF32, 20}),
    NameOf);

INSTANTIATE_TEST_SUITE_P(
    Sparse, FamilyInvarianceTest,
    testing::Values(Model{"llama", ComputeType::kF32, 20, 0.1},
                    Model{"llama_tied", ComputeType::kBF16, 20, 0.1},
                    Model{"qwen3", ComputeType::kBF16, 20, 0.2, DType::kU4G64},
                    Model{"gemma2", ComputeType::kF32, 20, 0.2, DType::kU8G64},
                    Model{"gemma3", ComputeType::kBF16, 20, 0.3}),
    NameOf);

class SparseTest : public testing::Test {
 protected:
  static EngineRequest Prompt(uint64_t id) {
    std::mt19937 generator(static_cast<uint32_t>(id));
    EngineRequest request;
    request.id = id;
    request.prompt.resize(70);
    for (int32_t& token : request.prompt) {
      token = AnyToken(generator);
    }
    request.sampling.want_logprobs = true;
    request.sampling.ignore_eos = true;
    request.sampling.max_output_tokens = 40;
    return request;
  }
  static Outcomes Run(const Model& model, const std::vector<EngineRequest>& requests) {
    return RunToEnd(*CreateEngine(model, 16, 24, 2), requests, {.block = 64}).outcomes;
  }
};

// The first token follows the prompt, which is dense; what follows it is not.
TEST_F(SparseTest, ChangesWhatFollowsTheFirstToken) {
  const Model dense = {"llama", ComputeType::kF32, 0};
  const Model sparse = {"llama", ComputeType::kF32, 0, 0.1};
  const Outcome with_all = Run(dense, {Prompt(1)}).at(1);
  const Outcome with_few = Run(sparse, {Prompt(1)}).at(1);
  EXPECT_EQ(with_few.logprob_bits[0], with_all.logprob_bits[0]);
  EXPECT_NE(with_few.logprob_bits[1], with_all.logprob_bits[1]);
  const Model all = {"llama", ComputeType::kF32, 0, 1.0};
  EXPECT_TRUE(Run(all, {Prompt(1)}).at(1) == with_all);
}

// Scored tokens behind a prompt get what they got when they were generated.
TEST_F(SparseTest, ScoresATextAsItGeneratedIt) {
  for (const Model& model : {Model{"llama", ComputeType::kF32, 0, 0.1},
                             Model{"llama", ComputeType::kBF16, 0, 0.1},
                             Model{"gemma2", ComputeType::kF32, 0, 0.2},
                             Model{"qwen3", ComputeType::kBF16, 0, 0.1, DType::kU4G64}}) {
    SCOPED_TRACE(model.name);
    std::vector<EngineRequest> generating;
    for (uint64_t id = 1; id <= 4; ++id) {
      generating.push_back(Prompt(id));
    }
    const Outcomes generated = Run(model, generating);
    std::vector<EngineRequest> scoring = generating;
    for (EngineRequest& request : scoring) {
      request.sampling.scored_from = static_cast<int64_t>(request.prompt.size());
      request.sampling.prompt_logprobs = 0;
      request.sampling.max_output_tokens = 0;
      const std::vector<int32_t>& tokens = generated.at(request.id).tokens;
      request.prompt.insert(request.prompt.end(), tokens.begin(), tokens.end());
    }
    for (const auto& [id, scored] : Run(model, scoring)) {
      EXPECT_EQ(scored.prompt_logprob_bits, generated.at(id).logprob_bits) << "request " << id;
    }
  }
}

}  // namespace
}  // namespace nightshift
