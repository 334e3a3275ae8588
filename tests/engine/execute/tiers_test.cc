// Where weights, keys and values, and activations lie, how sweeps are cut and how what is elsewhere
// is moved changes nothing: every request gets the tokens and logprob bits of the run with all of
// it on the device. A covering array picks the settings: every pair of two choices occurs in some
// run (every triple with NIGHTSHIFT_COVER=3).
#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "engine/engine.h"
#include "tests/support/covering_array.h"
#include "tests/support/engine_runs.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// One choice of each row makes a run. The first ones are those of the run to compare with.
const std::vector<TierShares>& Shares() {
  static const std::vector<TierShares> shares = {{1.0, 0.0}, {0.0, 1.0}, {0.0, 0.0}, {0.2, 0.3}};
  return shares;
}
const std::vector<const char*> kShareNames = {"device", "host", "disk", "mixed"};
const std::vector<int64_t> kBatchTokens = {64, 1, 3, 16};

enum Factor : size_t {
  kModel,
  kWeights,
  kKv,
  kActivations,
  kBatch,
  kSchedule,
  kOverlap,
  kBuffering,
  kBackend,
  kMemory,
  kAttention,
  kPrefixes,
  kNumFactors
};

struct Model {
  const char* name;
  ComputeType compute_type;
  std::optional<DType> kv_type = {};
  double sparse_attention = 1.0;
};
// One of each family; all compute types; keys and values as computed and
// packed, all of them attended to and few.
const std::vector<Model> kModels = {
    {"llama", ComputeType::kBF16},
    {"llama_tied", ComputeType::kF32},
    {"mistral", ComputeType::kF32},
    {"qwen2", ComputeType::kBF16},
    {"qwen2_sliding", ComputeType::kF32},
    {"qwen3", ComputeType::kBF16},
    {"gemma2", ComputeType::kF32},
    {"gemma3", ComputeType::kBF16},
    {"phi3", ComputeType::kF32},
    {"olmo2", ComputeType::kBF16},
    {"granite", ComputeType::kF32},
    {"stablelm_parallel", ComputeType::kBF16},
    {"gpt_neox", ComputeType::kF32},
    {"falcon", ComputeType::kBF16},
    {"opt", ComputeType::kBF16},
    {"opt_postnorm", ComputeType::kF32},
    {"mixtral", ComputeType::kF32},
    {"qwen3_moe", ComputeType::kBF16},
    {"llama_tied:int4", ComputeType::kBF16},
    {"mixtral:int8", ComputeType::kF32},
    {"qwen3", ComputeType::kBF16, DType::kU4G64},
    {"gemma2", ComputeType::kF32, DType::kU4G64},
    {"gemma3", ComputeType::kBF16, DType::kU8G64},
    {"llama_tied:int4", ComputeType::kBF16, DType::kU4G64},
    {"llama_tied:int4", ComputeType::kInt8, DType::kU4G64},
    {"mixtral:int8", ComputeType::kInt8, DType::kU8G64},
    {"llama", ComputeType::kBF16, {}, 0.1},
    {"gemma2", ComputeType::kF32, {}, 0.2},
    {"qwen3", ComputeType::kBF16, DType::kU4G64, 0.1},
    {"gemma3", ComputeType::kF32, DType::kU8G64, 0.2},
};

std::vector<size_t> NumChoices() {
  std::vector<size_t> choices(kNumFactors, 2);
  choices[kModel] = kModels.size();
  choices[kWeights] = choices[kKv] = choices[kActivations] = Shares().size();
  choices[kBatch] = kBatchTokens.size();
  choices[kSchedule] = 3;
  return choices;
}

std::string Describe(const std::vector<size_t>& run) {
  static const char* const kSchedules[] = {"rolling", "zigzag", "row"};
  const Model& model = kModels[run[kModel]];
  std::string text = absl::StrCat(model.name, " in ", ComputeTypeName(model.compute_type));
  if (model.kv_type) text += std::string(" of ") + DTypeName(*model.kv_type);
  if (model.sparse_attention < 1.0) text += absl::StrCat(" sparse ", model.sparse_attention);
  text += std::string(", weights ") + kShareNames[run[kWeights]];
  text += std::string(", kv ") + kShareNames[run[kKv]];
  text += std::string(", activations ") + kShareNames[run[kActivations]];
  text += ", batch " + std::to_string(kBatchTokens[run[kBatch]]);
  text += std::string(", ") + kSchedules[run[kSchedule]];
  text += run[kOverlap] == 0 ? ", overlap" : ", no overlap";
  text += run[kBuffering] == 0 ? ", ring" : ", two layers";
  text += run[kBackend] == 0 ? ", io_uring" : ", threads";
  text += run[kMemory] == 0 ? ", unified" : ", discrete";
  text += run[kAttention] == 0 ? "" : ", attention on the host";
  text += run[kPrefixes] == 0 ? ", shared prefixes" : "";
  return text;
}

std::vector<EngineRequest> Requests(int64_t vocabulary) {
  std::mt19937 generator(11);
  const auto draw = [&](int32_t least, int32_t most) {
    return std::uniform_int_distribution<int32_t>(least, most)(generator);
  };
  std::vector<int32_t> beginning(70);
  for (int32_t& token : beginning) {
    token = draw(3, static_cast<int32_t>(vocabulary) - 1);
  }
  std::vector<EngineRequest> requests;
  for (uint64_t i = 0; i < 8; ++i) {
    EngineRequest request;
    request.id = i;
    if (i % 2 == 0) {
      request.prompt = beginning;
    }
    for (int32_t n = draw(1, 40); n > 0; --n) {
      request.prompt.push_back(draw(3, static_cast<int32_t>(vocabulary) - 1));
    }
    request.sampling.max_output_tokens = 3 + static_cast<int64_t>(i);
    request.sampling.temperature = i % 3 == 0 ? 0.0F : 1.3F;
    request.sampling.top_p = i % 3 == 1 ? 0.99F : 1.0F;
    request.sampling.seed = request.sampling.request_key = i;
    request.sampling.want_logprobs = true;
    request.sampling.top_logprobs = 2;
    if (i == 3) {
      request.sampling.prompt_logprobs = 1;
    }
    requests.push_back(request);
  }
  return requests;
}

class TiersTest : public testing::Test {
 protected:
  EngineOptions Options(const std::vector<size_t>& run) const {
    EngineOptions options;
    options.pack_path = TinyPackWithTokenizer(kModels[run[kModel]].name);
    options.compute_type = kModels[run[kModel]].compute_type;
    options.kv_type = kModels[run[kModel]].kv_type;
    options.sparse_attention = kModels[run[kModel]].sparse_attention;
    options.num_threads = 2;
    options.memory_budget_bytes = 256 * kMiB;
    options.max_sweep_tokens = 64;
    options.max_block_requests = 6;
    options.prompt_chunk_tokens = 24;
    options.max_batch_tokens = kBatchTokens[run[kBatch]];
    options.weight_ring_bytes = 1;  // as small as can be
    options.disk_backend = run[kBackend] == 0 ? DiskBackend::kIoUring : DiskBackend::kThreads;
    options.share_prefixes = run[kPrefixes] == 0;
    TierOptions& tiers = options.tiers;
    tiers.device_budget_bytes = run[kMemory] == 0 ? 0 : 256 * kMiB;
    tiers.disk_budget_bytes = 64 * kMiB;
    tiers.spill_folder = folder_.path();
    tiers.weights = Shares()[run[kWeights]];
    tiers.kv = Shares()[run[kKv]];
    tiers.activations = Shares()[run[kActivations]];
    static constexpr ScheduleKind kSchedules[] = {ScheduleKind::kRolling, ScheduleKind::kZigzag,
                                                  ScheduleKind::kRow};
    tiers.schedule = kSchedules[run[kSchedule]];
    tiers.overlap = run[kOverlap] == 0;
    tiers.buffering = run[kBuffering] == 0 ? WeightBuffering::kRing : WeightBuffering::kTwoLayers;
    tiers.host_attention = run[kAttention] == 1;
    return options;
  }

  // Each lane moves something where the placement has something for it, and nothing else. Of mixed
  // activations small sweeps fit on the device.
  static void ExpectLanesInUse(const std::vector<size_t>& run, const SweepTimes& times) {
    const bool discrete = run[kMemory] == 1;
    const auto on_disk = [&](Factor factor) { return run[factor] >= 2; };
    const auto off_device = [&](Factor factor) {
      return run[factor] >= 2 || (discrete && run[factor] == 1);
    };
    const auto expect = [&](LaneId lane, bool weights, bool kv, bool activations) {
      const int64_t bytes = times.of(lane).bytes;
      if (weights || kv || (activations && run[kActivations] != 3)) {
        EXPECT_GT(bytes, 0) << LaneName(lane);
      } else if (!activations) {
        EXPECT_EQ(bytes, 0) << LaneName(lane);
      }
    };
    expect(LaneId::kRead, on_disk(kWeights), on_disk(kKv), on_disk(kActivations));
    expect(LaneId::kWrite, false, on_disk(kKv), on_disk(kActivations));
    expect(LaneId::kUpload, discrete && off_device(kWeights), discrete && off_device(kKv),
           discrete && off_device(kActivations));
    EXPECT_EQ(times.of(LaneId::kHostAttention).busy_us > 0,
              discrete && run[kAttention] == 1 && off_device(kKv));
  }

  const Outcomes& Expected(size_t model) {
    Outcomes& outcomes = expected_[model];
    if (outcomes.empty()) {
      std::vector<size_t> run(kNumFactors, 0);
      run[kModel] = model;
      run[kPrefixes] = 1;
      run[kBackend] = 1;  // what every machine has
      outcomes = Run(Options(run)).outcomes;
    }
    return outcomes;
  }
  static RunReport Run(const EngineOptions& options) {
    absl::StatusOr<std::unique_ptr<Engine>> engine = Engine::Create(options);
    EXPECT_OK(engine);
    if (!engine.ok()) {
      return {};
    }
    return RunToEnd(**engine, Requests((*engine)->info().vocabulary), {.block = 6});
  }

  TemporaryFolder folder_;
  std::map<size_t, Outcomes> expected_;
};

TEST_F(TiersTest, SameBitsForEveryPlacementScheduleAndSetting) {
  const char* cover = std::getenv("NIGHTSHIFT_COVER");
  const std::vector<std::vector<size_t>> runs =
      CoveringArray(NumChoices(), cover != nullptr && std::string(cover) == "3" ? 3 : 2);
  DiskQueueOptions by_io_uring;
  by_io_uring.backend = DiskBackend::kIoUring;
  const absl::Status io_uring = DiskQueue::Create(by_io_uring).status();
  size_t left_out = 0;
  for (const std::vector<size_t>& run : runs) {
    if (run[kBackend] == 0 && !io_uring.ok()) {
      ++left_out;
      continue;
    }
    SCOPED_TRACE(Describe(run));
    const EngineOptions options = Options(run);
    const RunReport report = Run(options);
    EXPECT_TRUE(report.outcomes == Expected(run[kModel]));
    ExpectLanesInUse(run, report.times);
  }
  RecordProperty("runs", static_cast<int>(runs.size() - left_out));
  if (left_out > 0) {
    GTEST_SKIP() << left_out << " of " << runs.size() << " runs were left out: " << io_uring;
  }
}

}  // namespace
}  // namespace nightshift
