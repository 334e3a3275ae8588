#include "engine/engine.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "tests/support/engine_runs.h"
#include "tests/support/golden.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

using absl::StatusCode;

EngineOptions TinyOptions() {
  EngineOptions options;
  options.pack_path = TinyPackWithTokenizer("llama");
  options.compute_type = ComputeType::kF32;
  options.num_threads = 1;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.weight_budget_bytes = INT64_MAX;  // all in memory: what is left are KV pages
  options.max_block_requests = 8;
  return options;
}

std::unique_ptr<Engine> TinyEngine(const EngineOptions& options = TinyOptions()) {
  absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
  EXPECT_OK(engine);
  return std::move(engine).value();
}

// The smallest budget that Create accepts, and `pages` more KV pages than it then has.
EngineOptions OptionsWithPages(int64_t pages) {
  EngineOptions options = TinyOptions();
  const std::unique_ptr<Engine> roomy = TinyEngine(options);
  const EngineInfo& info = roomy->info();
  const int64_t page_bytes = info.kv_budget_bytes / info.kv_budget_pages;
  options.memory_budget_bytes = 1;
  const std::string message(Engine::Create(options).status().message());
  const size_t number = message.find("at least ") + 9;
  options.memory_budget_bytes = std::stoll(message.substr(number)) + pages * page_bytes;
  return options;
}

EngineRequest Request(uint64_t id, int64_t prompt_tokens, int64_t max_output_tokens) {
  EngineRequest request;
  request.id = id;
  for (int64_t i = 0; i < prompt_tokens; ++i) {
    request.prompt.push_back(
        static_cast<int32_t>(3 + (static_cast<int64_t>(id) * 31 + i * 7) % 300));
  }
  request.sampling.max_output_tokens = max_output_tokens;
  request.sampling.request_key = id;
  return request;
}

absl::Status AdmitOne(Engine& engine, EngineRequest request) {
  return engine.Admit({std::move(request)})[0].status;
}

TEST(EngineOptionsTest, NamesTheOptionThatIsOutOfRange) {
  const auto validate = [](void (*change)(EngineOptions&)) {
    EngineOptions options;
    options.pack_path = "pack";
    change(options);
    return options.Validate();
  };
  EXPECT_OK(validate([](EngineOptions&) {}));
  EXPECT_THAT(validate([](EngineOptions& o) { o.pack_path = ""; }),
              StatusIs(StatusCode::kInvalidArgument, "pack_path"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.num_threads = -1; }),
              StatusIs(StatusCode::kInvalidArgument, "num_threads"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.memory_budget_bytes = 0; }),
              StatusIs(StatusCode::kInvalidArgument, "memory_budget_bytes"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.max_block_requests = 0; }),
              StatusIs(StatusCode::kInvalidArgument, "max_block_requests"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.max_sweep_tokens = 255; }),
              StatusIs(StatusCode::kInvalidArgument, "max_sweep_tokens is 255"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.max_batch_tokens = 0; }),
              StatusIs(StatusCode::kInvalidArgument, "max_batch_tokens"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.prompt_chunk_tokens = -1; }),
              StatusIs(StatusCode::kInvalidArgument, "prompt_chunk_tokens"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.sparse_attention = 0.0; }),
              StatusIs(StatusCode::kInvalidArgument, "sparse_attention is 0;"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.sparse_attention = 1.5; }),
              StatusIs(StatusCode::kInvalidArgument, "sparse_attention is 1.5;"));
  EXPECT_THAT(validate([](EngineOptions& o) { o.sparse_attention = NAN; }),
              StatusIs(StatusCode::kInvalidArgument, "sparse_attention is nan;"));
}

TEST(EngineOptionsTest, ANumericModeTellsAllThatFixesTheNumbers) {
  EngineOptions options;
  EXPECT_EQ(options.NumericMode(), "bf16");
  options.sparse_attention = 0.1;
  EXPECT_EQ(options.NumericMode(), "bf16/sparse 0.1");
  options.kv_type = DType::kU4G64;
  options.sparse_attention = std::nextafter(0.1, 1.0);  // another number, other tokens
  EXPECT_EQ(options.NumericMode(), "bf16/kv int4/sparse 0.10000000000000002");
}

TEST(EngineTest, SaysWhatItHolds) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  const EngineInfo& info = engine->info();
  EXPECT_EQ(info.model_digest.size(), 16U);
  EXPECT_EQ(info.numeric_mode, "f32/device");
  EXPECT_NE(info.device.find("cpu"), std::string::npos);
  EXPECT_EQ(info.context_tokens, 256);
  EXPECT_EQ(info.vocabulary, 331);
  EXPECT_EQ(info.max_block_requests, 8);
  EXPECT_EQ(info.kv_needs.page_positions, 32);
  // No more pages than a full block of full contexts can use.
  EXPECT_EQ(info.kv_budget_pages, 8 * 256 / 32);
  EXPECT_GT(info.weight_bytes, 400'000);
  EXPECT_GT(info.kv_budget_bytes, 0);
}

TEST(EngineTest, RefusesAMissingPack) {
  EngineOptions options = TinyOptions();
  options.pack_path = "/nonexistent/pack";
  EXPECT_THAT(Engine::Create(options), StatusIs(StatusCode::kNotFound, "/nonexistent/pack"));
}

TEST(EngineTest, RefusesABudgetThatIsTooSmallAndSaysWhatItTakes) {
  EngineOptions options = OptionsWithPages(0);
  EXPECT_OK(Engine::Create(options));
  options.memory_budget_bytes -= 1;
  EXPECT_THAT(Engine::Create(options),
              StatusIs(StatusCode::kResourceExhausted, "raise the budget to at least"));
}

TEST(EngineTest, RefusesWhatCanNeverRun) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  const auto refused = [&](EngineRequest request, const char* text) {
    EXPECT_THAT(AdmitOne(*engine, std::move(request)),
                StatusIs(StatusCode::kInvalidArgument, text));
  };
  refused(Request(1, 0, 5), "no tokens");
  refused(Request(1, 256, 5), "256 tokens");
  EngineRequest request = Request(1, 5, 5);
  request.prompt[2] = 331;
  refused(request, "prompt token 2 has id 331");
  request.prompt[2] = -1;
  refused(request, "prompt token 2 has id -1");
  request = Request(1, 5, 5);
  request.generated = {400};
  refused(request, "generated token 0 has id 400");
  request.generated = {5, 6};
  request.generated_logprobs.resize(1);
  refused(request, "2 generated tokens have 1 logprobs");
  request = Request(1, 5, 5);
  request.sampling.top_p = 2.0F;
  refused(request, "top_p");
  request = Request(1, 5, 2);
  request.generated = {5, 6};
  refused(request, "had finished with generated token 1 of 2");
  EXPECT_EQ(engine->num_held(), 0);
}

TEST(EngineTest, RefusesStopStringsWithoutATokenizer) {
  EngineOptions options = TinyOptions();
  options.pack_path = TinyPack("llama");
  const std::unique_ptr<Engine> engine = TinyEngine(options);
  EngineRequest request = Request(1, 5, 5);
  request.sampling.stop = {"x"};
  EXPECT_THAT(AdmitOne(*engine, request), StatusIs(StatusCode::kInvalidArgument, "tokenizer"));
}

TEST(EngineTest, RefusesASecondRequestOfTheSameId) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  const std::vector<AdmitOutcome> outcomes =
      engine->Admit({Request(7, 5, 5), Request(7, 6, 5), Request(8, 6, 5)});
  ASSERT_EQ(outcomes.size(), 3U);
  EXPECT_OK(outcomes[0].status);
  EXPECT_THAT(outcomes[1].status, StatusIs(StatusCode::kInvalidArgument, "request 7"));
  EXPECT_OK(outcomes[2].status);
  EXPECT_EQ(engine->num_held(), 2);
}

TEST(EngineTest, AFullBlockAsksToComeAgain) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  for (uint64_t id = 0; id < 8; ++id) {
    ASSERT_OK(AdmitOne(*engine, Request(id, 3, 2)));
  }
  EXPECT_THAT(AdmitOne(*engine, Request(9, 3, 2)),
              StatusIs(StatusCode::kResourceExhausted, "budget 8"));
  engine->Retire({3, 4, 99});
  EXPECT_EQ(engine->num_held(), 6);
  EXPECT_OK(AdmitOne(*engine, Request(9, 3, 2)));
}

TEST(EngineTest, ExhaustedPagesAskToComeAgainWithNumbers) {
  const std::unique_ptr<Engine> engine = TinyEngine(OptionsWithPages(1));
  ASSERT_EQ(engine->info().kv_budget_pages, 9);
  ASSERT_OK(AdmitOne(*engine, Request(1, 200, 10)));
  EXPECT_THAT(AdmitOne(*engine, Request(2, 70, 10)),
              StatusIs(StatusCode::kResourceExhausted, "asked 3 kv pages, free 2, budget 9"));
  EXPECT_OK(AdmitOne(*engine, Request(3, 50, 10)));
}

TEST(EngineTest, NobodyIsPassedOverBySmallerOnesOfTheSameCall) {
  const std::unique_ptr<Engine> engine = TinyEngine(OptionsWithPages(1));
  const std::vector<AdmitOutcome> outcomes =
      engine->Admit({Request(1, 200, 10), Request(2, 70, 10), Request(3, 50, 10)});
  EXPECT_OK(outcomes[0].status);
  EXPECT_THAT(outcomes[1].status, StatusIs(StatusCode::kResourceExhausted, "admit request 2"));
  EXPECT_THAT(outcomes[2].status, StatusIs(StatusCode::kResourceExhausted, "admit request 2"));
  EXPECT_EQ(engine->num_held(), 1);
}

TEST(EngineTest, ContextEndsACompletionByLength) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  EngineRequest request = Request(1, 250, 100);
  const RunReport report = RunToEnd(*engine, {request}, {});
  const Outcome& outcome = report.outcomes.at(1);
  if (outcome.finish_reason == FinishReason::kLength) {
    EXPECT_EQ(outcome.tokens.size(), 6U);
  } else {
    EXPECT_LT(outcome.tokens.size(), 6U);
  }
}

TEST(EngineTest, PromptsEnterBesideDecodingRequests) {
  EngineOptions options = TinyOptions();
  options.prompt_chunk_tokens = 20;
  const std::unique_ptr<Engine> engine = TinyEngine(options);
  ASSERT_OK(AdmitOne(*engine, Request(1, 10, 50)));
  ASSERT_OK_AND_ASSIGN(SweepResult first, engine->Sweep());
  EXPECT_EQ(first.prompt_tokens, 10);
  EXPECT_EQ(first.output_tokens, 1);
  ASSERT_OK(AdmitOne(*engine, Request(2, 45, 50)));
  const std::vector<int64_t> prompt_tokens = {20, 20, 5, 0};
  const std::vector<int64_t> output_tokens = {1, 1, 2, 2};
  for (size_t i = 0; i < prompt_tokens.size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());
    EXPECT_EQ(result.prompt_tokens, prompt_tokens[i]) << "sweep " << i;
    EXPECT_EQ(result.output_tokens, output_tokens[i]) << "sweep " << i;
  }
}

// A pack whose last norm is so large that rows overflow, as a hostile checkpoint may have it.
TEST(EngineTest, LogitsThatAreNotFiniteAreAnErrorThatNamesTheRequest) {
  const PackFolder folder;
  const std::string source = folder.path() + "/llama_tied";
  std::filesystem::copy(std::string(TEST_DATA_DIR) + "/tiny/llama_tied", source);
  std::string bytes = ReadWholeFile(source + "/model.safetensors");
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, header_bytes));
  const size_t first = header["model.norm.weight"]["data_offsets"][0].get<size_t>();
  for (size_t i = 0; i < 128; ++i) {
    bytes.replace(8 + header_bytes + first + 2 * i, 2, "\x7f\x7f");  // the largest bf16
  }
  std::ofstream(source + "/model.safetensors", std::ios::binary) << bytes;
  EngineOptions options = TinyOptions();
  options.pack_path = folder.path() + "/pack";
  ASSERT_OK(ImportForTest(source, options.pack_path, nullptr));
  for (const float temperature : {0.0F, 1.0F}) {
    const std::unique_ptr<Engine> engine = TinyEngine(options);
    EngineRequest request = Request(77, 5, 5);
    request.sampling.temperature = temperature;
    request.sampling.top_p = 0.9F;
    ASSERT_OK(AdmitOne(*engine, request));
    EXPECT_THAT(engine->Sweep(), StatusIs(StatusCode::kInternal, "request 77"));
    engine->Retire({77});
    EXPECT_EQ(engine->num_held(), 0);
  }
}

TEST(EngineTest, NothingHeldIsAnEmptySweep) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());
  EXPECT_TRUE(result.records.empty());
  EXPECT_EQ(result.prompt_tokens, 0);
}

TEST(EngineTest, SuspendGivesTheStateAndFreesThePlace) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  EngineRequest request = Request(1, 10, 50);
  request.sampling.temperature = 0.0F;
  request.sampling.top_logprobs = 2;
  ASSERT_OK(AdmitOne(*engine, request));
  std::vector<int32_t> tokens;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());
    tokens.push_back(result.records[0].token->token);
  }
  const std::vector<EngineRequest> suspended = engine->Suspend({5, 1});
  ASSERT_EQ(suspended.size(), 1U);
  EXPECT_EQ(engine->num_held(), 0);
  EXPECT_EQ(suspended[0].prompt, request.prompt);
  EXPECT_EQ(suspended[0].generated, tokens);
  ASSERT_EQ(suspended[0].generated_logprobs.size(), 3U);
  EXPECT_EQ(suspended[0].generated_logprobs[2].top.size(), 2U);
  EXPECT_EQ(suspended[0].sampling.max_output_tokens, 50);
}

TEST(EngineTest, APlanThatDoesNotFitLeavesAllAsItIs) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  ASSERT_OK(AdmitOne(*engine, Request(1, 10, 50)));
  ASSERT_OK(engine->Sweep());
  EngineOptions other_type = TinyOptions();
  other_type.compute_type = ComputeType::kBF16;
  EXPECT_THAT(engine->ApplyPlan(other_type), StatusIs(StatusCode::kInvalidArgument, "runs"));
  EngineOptions too_small = TinyOptions();
  too_small.memory_budget_bytes = 1000;
  EXPECT_THAT(engine->ApplyPlan(too_small), StatusIs(StatusCode::kResourceExhausted, "at least"));
  EXPECT_EQ(engine->num_held(), 1);
  ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());
  EXPECT_EQ(result.output_tokens, 1);
  EXPECT_EQ(result.prompt_tokens, 0) << "its keys and values are there";
}

TEST(EngineTest, APlanWithASmallerBlockSuspendsTheYoungest) {
  const std::unique_ptr<Engine> engine = TinyEngine();
  for (uint64_t id = 1; id <= 4; ++id) {
    ASSERT_OK(AdmitOne(*engine, Request(id, 10, 50)));
  }
  ASSERT_OK(engine->Sweep());
  EngineOptions smaller = TinyOptions();
  smaller.max_block_requests = 3;
  ASSERT_OK_AND_ASSIGN(const std::vector<EngineRequest> suspended, engine->ApplyPlan(smaller));
  ASSERT_EQ(suspended.size(), 1U);
  EXPECT_EQ(suspended[0].id, 4U);
  EXPECT_EQ(suspended[0].generated.size(), 1U);
  EXPECT_EQ(engine->num_held(), 3);
  EXPECT_EQ(engine->info().max_block_requests, 3);
  ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());
  EXPECT_EQ(result.output_tokens, 3);
}

// Outputs longer than the headroom that admission counts: the youngest have to go, come back, and
// end as if they had been alone.
TEST(EngineTest, EvictsTheYoungestWhenPagesRunOutAndLosesNothing) {
  std::vector<EngineRequest> requests;
  for (uint64_t id = 0; id < 6; ++id) {
    EngineRequest request = Request(id, 10, 220);
    request.sampling.seed = 5;
    requests.push_back(request);
  }
  const Outcomes expected = RunToEnd(*TinyEngine(), requests, {.block = 1}).outcomes;
  const std::unique_ptr<Engine> small = TinyEngine(OptionsWithPages(6));
  ASSERT_EQ(small->info().kv_budget_pages, 14);
  const RunReport report = RunToEnd(*small, requests, {});
  EXPECT_GT(report.evicted, 0);
  EXPECT_EQ(report.outcomes, expected);
}

// Of the model in `pack`, with just the memory that one request of its context takes.
EngineOptions LeastOptions(const std::string& pack, int64_t prompt_chunk_tokens) {
  EngineOptions options = TinyOptions();
  options.pack_path = pack;
  options.prompt_chunk_tokens = prompt_chunk_tokens;
  options.memory_budget_bytes = 1;
  const std::string message(Engine::Create(options).status().message());
  options.memory_budget_bytes = std::stoll(message.substr(message.find("at least ") + 9));
  return options;
}

TEST(EngineTest, ARequestOfASlidingModelHoldsItsWindowOnly) {
  const std::unique_ptr<Engine> roomy = TinyEngine([] {
    EngineOptions options = TinyOptions();
    options.pack_path = TinyPack("mistral");
    return options;
  }());
  const std::unique_ptr<Engine> small = TinyEngine(LeastOptions(TinyPack("mistral"), 16));
  // A window of 8 and chunks of 16: 23 positions, so two stretches of 32. A full context has 8.
  ASSERT_EQ(small->info().kv_budget_pages, 2);
  std::vector<EngineRequest> requests = {Request(1, 150, 90), Request(2, 3, 200)};
  for (EngineRequest& request : requests) {
    for (int32_t& token : request.prompt) {
      token = 3 + token % 290;  // The model has 300.
    }
  }
  const RunReport report = RunToEnd(*small, requests, {});
  EXPECT_EQ(report.evicted, 0);
  EXPECT_EQ(report.outcomes, RunToEnd(*roomy, requests, {}).outcomes);
}

TEST(EngineTest, LayersThatSlideAndThoseThatDoNotShareTheBudget) {
  EngineOptions options = TinyOptions();
  options.pack_path = TinyPack("gemma3");
  const std::unique_ptr<Engine> roomy = TinyEngine(options);
  // Three layers slide and one does not: an id is a layer's; 8 stretches and 3 times 2.
  EXPECT_EQ(roomy->info().kv_budget_pages, 8 * (8 + 3 * 8));
  const std::unique_ptr<Engine> small = TinyEngine(LeastOptions(TinyPack("gemma3"), 16));
  ASSERT_EQ(small->info().kv_budget_pages, 8 + 3 * 2);
  const std::vector<EngineRequest> requests = {Request(1, 150, 100), Request(2, 90, 60),
                                               Request(3, 20, 100)};
  EXPECT_EQ(RunToEnd(*small, requests, {}).outcomes, RunToEnd(*roomy, requests, {}).outcomes);
}

}  // namespace
}  // namespace nightshift
