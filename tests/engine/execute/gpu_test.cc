// The engine on an emulated GPU: where things lie and how sweeps are cut changes no bit, what the
// device cannot is refused, and its faults come out with their step.
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/engine.h"
#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;
constexpr TierShares kOnDevice = {1.0, 0.0};
constexpr TierShares kOnHost = {0.0, 1.0};
constexpr TierShares kOnDisk = {0.0, 0.0};
constexpr TierShares kMixed = {0.2, 0.3};

struct Setting {
  const char* name;
  TierShares weights = kOnDevice;
  TierShares kv = kOnDevice;
  TierShares activations = kOnDevice;
  int64_t batch_tokens = 64;
  ScheduleKind schedule = ScheduleKind::kRolling;
  bool overlap = true;
};
const Setting kSettings[] = {
    {"weights on the host", kOnHost},
    {"all on disk", kOnDisk, kOnDisk, kOnDisk, 16, ScheduleKind::kZigzag},
    {"mixed", kMixed, kMixed, kMixed, 3},
    {"keys on the host", kOnDevice, kOnHost, kOnHost, 16, ScheduleKind::kRolling, false},
    {"small batches", kOnDevice, kOnDevice, kOnDevice, 1, ScheduleKind::kRow},
};

struct Model {
  const char* name;
  ComputeType compute_type;
  std::optional<DType> kv_type = {};
};

class GpuTest : public testing::Test {
 protected:
  void SetUp() override { cuda_emulator::SetMachine({}); }

  EngineOptions Options(const Model& model, const Setting& setting) const {
    EngineOptions options;
    options.pack_path = TinyPackWithTokenizer(model.name);
    options.compute_type = model.compute_type;
    options.kv_type = model.kv_type;
    options.num_threads = 1;
    options.memory_budget_bytes = 32 * kMiB;
    options.max_sweep_tokens = 64;
    options.max_block_requests = 4;
    options.prompt_chunk_tokens = 24;
    options.max_batch_tokens = setting.batch_tokens;
    options.weight_ring_bytes = 1;  // as small as can be
    options.tiers = {.device_budget_bytes = 16 * kMiB,
                     .gpu = 0,
                     .disk_budget_bytes = 64 * kMiB,
                     .spill_folder = folder_.path(),
                     .weights = setting.weights,
                     .kv = setting.kv,
                     .activations = setting.activations,
                     .schedule = setting.schedule,
                     .overlap = setting.overlap};
    return options;
  }

  static std::vector<EngineRequest> Requests(int64_t vocabulary) {
    std::mt19937 generator(5);
    std::vector<EngineRequest> requests;
    for (uint64_t i = 0; i < 4; ++i) {
      EngineRequest request;
      request.id = i;
      for (uint64_t n = 0; n < 5 + 12 * i; ++n) {
        request.prompt.push_back(static_cast<int32_t>(generator() % (vocabulary - 3)) + 3);
      }
      request.sampling.max_output_tokens = 3;
      request.sampling.temperature = i % 2 == 0 ? 0.0F : 1.3F;
      request.sampling.top_p = i == 1 ? 0.99F : 1.0F;
      request.sampling.seed = request.sampling.request_key = i;
      request.sampling.want_logprobs = true;
      requests.push_back(request);
    }
    return requests;
  }
  static Outcomes Run(const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
    EXPECT_OK(engine);
    if (!engine.ok()) return {};
    return RunToEnd(**engine, Requests((*engine)->info().vocabulary), {.block = 4}).outcomes;
  }
  void ExpectSameBits(const Model& model) const {
    const Outcomes expected = Run(Options(model, {"all on the device"}));
    EXPECT_EQ(expected.size(), 4U);
    for (const Setting& setting : kSettings) {
      SCOPED_TRACE(setting.name);
      EXPECT_TRUE(Run(Options(model, setting)) == expected);
    }
  }

  TemporaryFolder folder_;
};

TEST_F(GpuTest, EveryPlacementGivesTheSameBits) {
  for (const Model& model :
       {Model{"llama", ComputeType::kBF16}, Model{"gemma2", ComputeType::kF32},
        Model{"opt_postnorm", ComputeType::kF32}, Model{"mixtral", ComputeType::kF32},
        Model{"llama_tied:int4", ComputeType::kBF16, DType::kU4G64}}) {
    SCOPED_TRACE(model.name);
    ExpectSameBits(model);
  }
}

TEST_F(GpuTest, GreedyTokensAreTheCpus) {
  const Model model = {"llama", ComputeType::kF32};
  EngineOptions options = Options(model, {"all on the device"});
  const Outcomes on_gpu = Run(options);
  options.tiers = {};
  Outcomes on_cpu = Run(options);
  for (const uint64_t greedy : {0U, 2U}) {
    EXPECT_EQ(on_gpu.at(greedy).tokens, on_cpu.at(greedy).tokens);
  }
}

TEST_F(GpuTest, SaysWhoComputes) {
  EngineOptions options = Options({"llama", ComputeType::kBF16}, {"keys on the host", kOnHost});
  ASSERT_OK_AND_ASSIGN(auto engine, Engine::Create(options));
  EXPECT_EQ(engine->info().numeric_mode, "bf16/cuda");
  EXPECT_NE(engine->info().device.find("Emulated GPU 0"), std::string::npos);
  engine.reset();
  options.tiers.host_attention = true;
  ASSERT_OK_AND_ASSIGN(engine, Engine::Create(options));
  EXPECT_EQ(engine->info().numeric_mode, "bf16/cuda and host");
}

TEST_F(GpuTest, RefusesWhatItCannot) {
  const Model model = {"llama", ComputeType::kBF16};
  const auto refusal = [](const EngineOptions& options) { return Engine::Create(options).status(); };
  constexpr auto kCannot = absl::StatusCode::kFailedPrecondition;
  EngineOptions options = Options(model, {""});
  options.sparse_attention = 0.5;
  EXPECT_THAT(refusal(options), StatusIs(kCannot, "only the CPU does sparse attention"));
  EXPECT_THAT(refusal(Options({"llama", ComputeType::kInt8}, {""})), StatusIs(kCannot, "int8"));
  options = Options(model, {""});
  options.tiers.device_budget_bytes = 0;
  EXPECT_THAT(refusal(options), StatusIs(absl::StatusCode::kInvalidArgument, "0 bytes of its"));
  cuda_emulator::SetMachine({.driver_version = 0});
  EXPECT_THAT(refusal(Options(model, {""})), StatusIs(kCannot, "libcuda.so.1"));
}

TEST_F(GpuTest, AFaultFailsTheSweepWithItsStep) {
  ASSERT_OK_AND_ASSIGN(const auto engine,
                       Engine::Create(Options({"llama", ComputeType::kBF16}, {""})));
  ASSERT_OK(engine->Admit({Requests(engine->info().vocabulary)[0]})[0].status);
  cuda_emulator::FailCall(cuda_emulator::Fault::kLaunch, 9);
  EXPECT_THAT(engine->Sweep(), StatusIs(absl::StatusCode::kInternal, "GPU 0: "));
  EXPECT_THAT(engine->Sweep(), StatusIs(absl::StatusCode::kInternal, "GPU 0: "));
}

}  // namespace
}  // namespace nightshift
