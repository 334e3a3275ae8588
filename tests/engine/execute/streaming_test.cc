// Where the weights lie changes nothing: with all, some or none of them in memory, whatever reads
// the disk, a request gets the same tokens and logprob bits.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/local_engine.h"
#include "engine/model/pack.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

struct Model {
  const char* name;
  ComputeType compute_type;
};

std::vector<EngineRequest> Requests(int64_t vocabulary, size_t longest_prompt) {
  std::mt19937 generator(7);
  std::vector<EngineRequest> requests;
  for (uint64_t i = 0; i < 12; ++i) {
    EngineRequest request;
    request.id = i;
    request.prompt.resize(std::uniform_int_distribution<size_t>(1, longest_prompt)(generator));
    for (int32_t& token : request.prompt) {
      token = std::uniform_int_distribution<int32_t>(
          3, static_cast<int32_t>(vocabulary) - 1)(generator);
    }
    request.sampling.max_output_tokens = 5 + static_cast<int64_t>(i);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 1.3F;
    request.sampling.top_p = i % 3 == 1 ? 0.99F : 1.0F;  // flat logits: needs a second look
    request.sampling.seed = i;
    request.sampling.request_key = i;
    request.sampling.want_logprobs = true;
    request.sampling.top_logprobs = 2;
    requests.push_back(request);
  }
  return requests;
}

class StreamingTest : public testing::TestWithParam<Model> {
 protected:
  static EngineOptions Options() {
    EngineOptions options;
    options.pack_path = TinyPackWithTokenizer(GetParam().name);
    options.compute_type = GetParam().compute_type;
    options.num_threads = 2;
    options.memory_budget_bytes = int64_t{64} << 20;
    options.max_sweep_tokens = 64;
    options.max_block_requests = 12;
    options.prompt_chunk_tokens = 16;
    return options;
  }
  static std::unique_ptr<Engine> Create(const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
    EXPECT_OK(engine);
    return std::move(engine).value();
  }
};

TEST_P(StreamingTest, SameBitsWhereverTheWeightsLie) {
  const std::unique_ptr<Engine> resident = Create(Options());
  EXPECT_EQ(resident->info().streamed_weight_bytes, 0);
  const std::vector<EngineRequest> requests = Requests(resident->info().vocabulary, 50);
  const Outcomes expected = RunToEnd(*resident, requests, {.block = 12}).outcomes;
  const int64_t all_bytes = resident->info().weight_bytes;
  int64_t streamed_before = 0;
  for (const int64_t share : {90, 60, 30, 0}) {
    for (const DiskBackend backend : {DiskBackend::kIoUring, DiskBackend::kThreads}) {
      SCOPED_TRACE(testing::Message() << share << " % by " << DiskBackendName(backend));
      EngineOptions options = Options();
      options.weight_budget_bytes = all_bytes * share / 100;
      options.weight_ring_bytes = share == 30 ? int64_t{16} << 20 : 1;  // 1: as small as can be
      options.disk_backend = backend;
      const auto engine = Engine::Create(options);
      if (absl::IsFailedPrecondition(engine.status())) {
        GTEST_SKIP() << engine.status();
      }
      ASSERT_OK(engine);
      EXPECT_GE((*engine)->info().streamed_weight_bytes, streamed_before);
      streamed_before = (*engine)->info().streamed_weight_bytes;
      const RunReport report = RunToEnd(**engine, requests, {.block = 5});
      ASSERT_EQ(report.outcomes.size(), expected.size());
      for (const auto& [id, outcome] : expected) {
        EXPECT_TRUE(report.outcomes.at(id) == outcome) << "request " << id;
      }
    }
  }
  EXPECT_GT(streamed_before, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Models, StreamingTest,
    testing::Values(Model{"opt", ComputeType::kBF16}, Model{"opt_postnorm", ComputeType::kF32},
                    Model{"llama", ComputeType::kF32}, Model{"llama_tied", ComputeType::kBF16},
                    Model{"mixtral", ComputeType::kF32}, Model{"gemma3", ComputeType::kBF16},
                    Model{"llama:int4", ComputeType::kBF16},
                    Model{"mixtral:int8", ComputeType::kF32}),
    [](const auto& model) {
      std::string name = std::string(model.param.name) + "_";
      std::replace(name.begin(), name.end(), ':', '_');
      return name + ComputeTypeName(model.param.compute_type);
    });

// What streams is what is stored: of 4 bits and their scales a third of bf16, the tables in 8.
TEST(PackedStreamingTest, PackedWeightsTakeAndStreamTheirStoredBytes) {
  EngineOptions options;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.max_sweep_tokens = 64;
  options.max_block_requests = 12;
  std::map<std::string, EngineInfo> resident;
  std::map<std::string, EngineInfo> streamed;
  for (const char* name : {"llama", "llama:int4"}) {
    options.pack_path = TinyPackWithTokenizer(name);
    options.weight_budget_bytes = -1;
    ASSERT_OK_AND_ASSIGN(const auto all, Engine::Create(options));
    resident[name] = all->info();
    options.weight_budget_bytes = 0;
    ASSERT_OK_AND_ASSIGN(const auto none, Engine::Create(options));
    streamed[name] = none->info();
  }
  EXPECT_EQ(resident["llama:int4"].streamed_weight_bytes, 0);
  EXPECT_LT(resident["llama:int4"].weight_bytes, resident["llama"].weight_bytes * 2 / 3);
  EXPECT_LT(streamed["llama:int4"].streamed_weight_bytes,
            streamed["llama"].streamed_weight_bytes / 2);
}

// A text of one word hits mostly the same experts: they come into memory, so that later sweeps read
// less, and the tokens are the same.
TEST(ExpertStreamingTest, ExpertsThatAreHitMostComeIntoMemory) {
  EngineOptions options;
  options.pack_path = TinyPackWithTokenizer("qwen3_moe");
  options.compute_type = ComputeType::kF32;
  options.num_threads = 1;
  options.memory_budget_bytes = int64_t{64} << 20;
  EngineRequest request;
  request.prompt = {17};
  request.sampling.max_output_tokens = 120;
  request.sampling.ignore_eos = true;
  request.sampling.logit_bias = {{17, 100.0F}};
  request.sampling.want_logprobs = true;
  ASSERT_OK_AND_ASSIGN(const auto resident, Engine::Create(options));
  const Outcomes expected = RunToEnd(*resident, {request}, {}).outcomes;
  options.weight_budget_bytes = resident->info().weight_bytes / 2;
  ASSERT_OK_AND_ASSIGN(const auto engine, LocalEngine::Create(options));
  ASSERT_OK(engine->Admit({request})[0].status);
  std::vector<int64_t> read_bytes = {0};  // at the end of each sweep
  Outcome outcome;
  while (engine->num_held() > 0) {
    ASSERT_OK_AND_ASSIGN(const SweepResult result, engine->Sweep());
    AddRecord(result.records.at(0), outcome);
    read_bytes.push_back(engine->expert_stream()->read_bytes());
  }
  EXPECT_TRUE(outcome == expected.at(0));
  // Were all to stay where they are, each sweep would read about as much as the first.
  const int64_t sweeps = static_cast<int64_t>(read_bytes.size()) - 1;
  EXPECT_GT(read_bytes[1], 0);
  EXPECT_LT(read_bytes.back(), sweeps * read_bytes[1] / 8);
  EXPECT_GT(engine->expert_stream()->num_exchanges(), 0);
}

// The refusal names the least budget that would do: one with streamed weights.
TEST(StreamingBudgetTest, TheBudgetThatARefusalNamesIsEnough) {
  EngineOptions options;
  options.pack_path = TinyPackWithTokenizer("llama");
  options.max_sweep_tokens = 64;
  options.max_block_requests = 12;
  for (const int64_t ring_bytes : {int64_t{1}, int64_t{300} << 10, int64_t{64} << 20}) {
    options.weight_ring_bytes = ring_bytes;
    options.memory_budget_bytes = 1;
    const std::string message(Engine::Create(options).status().message());
    options.memory_budget_bytes = std::stoll(message.substr(message.find("at least ") + 9));
    EXPECT_OK(Engine::Create(options)) << "ring of " << ring_bytes;
  }
}

// No text of wrong weights: the sweep that meets them fails, by the name of the shard.
TEST(StreamingFaultTest, AFlippedByteFailsTheSweepThatReadsIt) {
  PackFolder folder;
  const std::string path = folder.path() + "/pack";
  std::filesystem::copy(TinyPackWithTokenizer("llama"), path,
                        std::filesystem::copy_options::recursive);
  EngineOptions options;
  options.pack_path = path;
  options.compute_type = ComputeType::kF32;
  options.weight_budget_bytes = 0;
  options.weight_ring_bytes = 1;
  options.memory_budget_bytes = int64_t{64} << 20;
  options.max_sweep_tokens = 64;
  options.max_block_requests = 12;
  {
    ASSERT_OK_AND_ASSIGN(const auto pack, Pack::Open(path));
    const ShardEntry& shard = pack->Find("layers.2.up.weight")->shards.front();
    std::fstream file(path + "/" + kExtentFile, std::ios::binary | std::ios::in | std::ios::out);
    file.seekp(shard.offset + shard.bytes / 2);
    file.put('\x55');
  }
  ASSERT_OK_AND_ASSIGN(const auto engine, Engine::Create(options));
  for (const AdmitOutcome& outcome : engine->Admit(Requests(engine->info().vocabulary, 4))) {
    EXPECT_OK(outcome.status);
  }
  EXPECT_THAT(engine->Sweep(), StatusIs(absl::StatusCode::kDataLoss, "layers.2.up.weight"));
}

}  // namespace
}  // namespace nightshift
