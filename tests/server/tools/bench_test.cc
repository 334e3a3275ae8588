#include "server/tools/bench.h"

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "server/tools/random_import.h"
#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

namespace nightshift {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Computes whole prompts, one request a sweep in 10 s, then a token of every request in 1 s.
class SteadyEngine : public Engine {
 public:
  SteadyEngine(FakeClock& clock, size_t block) : clock_(clock), block_(block) {
    info_.vocabulary = 100;
  }
  const EngineInfo& info() const override { return info_; }
  EngineUsage Usage() const override { return usage_; }
  std::vector<AdmitOutcome> Admit(std::vector<EngineRequest> requests) override {
    std::vector<AdmitOutcome> outcomes;
    for (EngineRequest& request : requests) {
      const bool fits = held_.size() < block_;
      outcomes.push_back({request.id, fits ? absl::OkStatus()
                                           : absl::ResourceExhaustedError("the block is full")});
      if (fits) {
        held_.push_back({std::move(request), false});
      }
    }
    return outcomes;
  }
  absl::StatusOr<SweepResult> Sweep() override {
    SweepResult result;
    const auto fresh = std::find_if(held_.begin(), held_.end(),
                                    [](const Held& held) { return !held.prompt_done; });
    if (fresh != held_.end()) {
      clock_.Advance(10'000'000);
      fresh->prompt_done = true;
      result.prompt_tokens = static_cast<int64_t>(fresh->request.prompt.size());
      Sample(*fresh, result);
    } else {
      clock_.Advance(1'000'000);
      for (Held& held : held_) {
        Sample(held, result);
      }
    }
    std::erase_if(held_, [](const Held& held) {
      return static_cast<int64_t>(held.request.generated.size()) ==
             held.request.sampling.max_output_tokens;
    });
    usage_.disk_read_bytes += 1 << 20;
    usage_.disk_busy_us += 500'000;
    usage_.kv_pages = static_cast<int64_t>(held_.size());
    return result;
  }
  std::vector<EngineRequest> Suspend(const std::vector<uint64_t>&) override { return {}; }
  void Retire(const std::vector<uint64_t>&) override {}
  absl::StatusOr<std::vector<EngineRequest>> ApplyPlan(const EngineOptions&) override {
    return std::vector<EngineRequest>();
  }
  int64_t num_held() const override { return static_cast<int64_t>(held_.size()); }

 private:
  struct Held {
    EngineRequest request;
    bool prompt_done = false;
  };
  static void Sample(Held& held, SweepResult& result) {
    held.request.generated.push_back(1);
    result.output_tokens += 1;
    SweepRecord record;
    record.id = held.request.id;
    record.token = TokenLogprob{};
    record.finished = static_cast<int64_t>(held.request.generated.size()) ==
                      held.request.sampling.max_output_tokens;
    result.records.push_back(std::move(record));
  }

  FakeClock& clock_;
  size_t block_;
  EngineInfo info_;
  EngineUsage usage_;
  std::vector<Held> held_;
};

BenchOptions Job(int64_t requests, int64_t prompt_tokens, int64_t output_tokens) {
  BenchOptions options;
  options.requests = requests;
  options.prompt_tokens = prompt_tokens;
  options.output_tokens = output_tokens;
  return options;
}

TEST(BenchTest, SharesTimeBetweenPrefillAndDecode) {
  FakeClock clock;
  SteadyEngine engine(clock, 4);
  ASSERT_OK_AND_ASSIGN(const BenchReport report, RunBench(Job(4, 50, 6), engine, clock, 2));
  EXPECT_EQ(report.prefill.tokens, 200);
  EXPECT_DOUBLE_EQ(report.prefill.seconds, 40);
  EXPECT_EQ(report.decode.tokens, 4 * 5);  // the first came with the prompts
  EXPECT_DOUBLE_EQ(report.decode.seconds, 5);
  EXPECT_DOUBLE_EQ(report.seconds, 45);
  EXPECT_EQ(report.finished, 4);
  EXPECT_FALSE(report.is_cut);
  EXPECT_EQ(report.projected_s, std::nullopt);
  EXPECT_EQ(report.usage.disk_read_bytes, 9 << 20);
  EXPECT_EQ(report.peak_kv_pages, 4);
}

TEST(BenchTest, RunsMoreRequestsThanTheBlockHolds) {
  FakeClock clock;
  SteadyEngine engine(clock, 4);
  ASSERT_OK_AND_ASSIGN(const BenchReport report, RunBench(Job(10, 5, 2), engine, clock, 0));
  EXPECT_EQ(report.finished, 10);
  EXPECT_EQ(report.prefill.tokens, 50);
}

TEST(BenchTest, ProjectsTheWholeJobFromACutRun) {
  FakeClock clock;
  SteadyEngine engine(clock, 2);
  BenchOptions options = Job(8, 50, 11);
  options.sweeps = 4;
  ASSERT_OK_AND_ASSIGN(const BenchReport report, RunBench(options, engine, clock, 0));
  EXPECT_EQ(report.sweeps.size(), 4U);
  EXPECT_TRUE(report.is_cut);
  ASSERT_TRUE(report.projected_s.has_value());
  // Eight prompts of 10 s, and ten more tokens of each at two a second.
  EXPECT_DOUBLE_EQ(*report.projected_s, 8 * 10 + 8 * 10 / 2.0);
  EXPECT_THAT(BenchText(options, report), HasSubstr("projected: the whole job in 120.0 s"));
}

TEST(BenchTest, ProjectsNothingFromPrefillAlone) {
  FakeClock clock;
  SteadyEngine engine(clock, 2);
  BenchOptions options = Job(8, 50, 11);
  options.sweeps = 1;
  ASSERT_OK_AND_ASSIGN(const BenchReport report, RunBench(options, engine, clock, 0));
  EXPECT_EQ(report.projected_s, std::nullopt);
  EXPECT_THAT(BenchText(options, report), HasSubstr("projected: nothing"));
  EXPECT_TRUE(nlohmann::json::parse(BenchJson(options, report))["projected"].is_null());
}

TEST(BenchTest, AnEngineWithoutRoomForOneRequestIsAnError) {
  FakeClock clock;
  SteadyEngine engine(clock, 0);
  EXPECT_THAT(RunBench(Job(1, 5, 2), engine, clock, 0),
              StatusIs(absl::StatusCode::kResourceExhausted, "the block is full"));
}

TEST(BenchTest, OptionsAreCheckedByName) {
  EXPECT_OK(Job(1, 1, 1).Validate());
  EXPECT_THAT(Job(0, 1, 1).Validate(), StatusIs(absl::StatusCode::kInvalidArgument, "--requests"));
  EXPECT_OK(Job(1, 1, 0).Validate());  // scores
  EXPECT_THAT(Job(1, 1, -1).Validate(),
              StatusIs(absl::StatusCode::kInvalidArgument, "--output-tokens"));
  BenchOptions options = Job(1, 10, 5);
  options.start_context = 14;
  EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument,
                                           "--start-context is 14, must be 0 to 13"));
  options.output_tokens = 0;
  EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, "must be 0 to 0"));
}

// The engine itself, on a pack of random weights.
class RealBenchTest : public ::testing::Test {
 protected:
  void SetUp() override {
    options_ = Job(5, 40, 6);
    options_.engine.pack_path = folder_.path() + "/pack";
    options_.engine.memory_budget_bytes = 32 << 20;
    options_.engine.num_threads = 1;
    ASSERT_OK(ImportRandom({.shape = "tiny", .output = options_.engine.pack_path}));
  }
  BenchReport Run() {
    const RealClock clock;
    auto engine = Engine::Create(options_.engine);
    EXPECT_OK(engine);
    auto report = RunBench(options_, **engine, clock, 0);
    EXPECT_OK(report);
    return report.value_or(BenchReport());
  }

  TemporaryFolder folder_;
  BenchOptions options_;
};

TEST_F(RealBenchTest, CountsEveryTokenOfTheJob) {
  const BenchReport report = Run();
  EXPECT_EQ(report.prefill.tokens, 5 * 40);
  EXPECT_EQ(report.decode.tokens, 5 * 5);
  EXPECT_EQ(report.finished, 5);
  EXPECT_EQ(report.usage.disk_read_bytes, 0);
  EXPECT_GE(report.peak_kv_pages, 5);
  EXPECT_LE(report.usage.memory_bytes, options_.engine.memory_budget_bytes);
  EXPECT_THAT(BenchText(options_, report), Not(HasSubstr("projected")));
}

TEST_F(RealBenchTest, CountsWhatIsStreamed) {
  options_.engine.weight_budget_bytes = 0;
  const BenchReport report = Run();
  EXPECT_EQ(report.finished, 5);
  EXPECT_GE(report.usage.disk_read_bytes,
            report.engine.streamed_weight_bytes * static_cast<int64_t>(report.sweeps.size() - 1));
  const nlohmann::json json = nlohmann::json::parse(BenchJson(options_, report));
  EXPECT_EQ(json["sweeps"].size(), report.sweeps.size());
  EXPECT_EQ(json["disk"]["read_bytes"], report.usage.disk_read_bytes);
  const SweepTimes& times = report.usage.times;
  EXPECT_EQ(times.sweeps, static_cast<int64_t>(report.sweeps.size()));
  EXPECT_GE(times.of(LaneId::kRead).bytes,
            report.engine.streamed_weight_bytes * static_cast<int64_t>(report.sweeps.size()));
  EXPECT_GT(times.of(LaneId::kCompute).busy_us, 0);
  EXPECT_EQ(json["lanes"]["read"]["bytes"], times.of(LaneId::kRead).bytes);
  EXPECT_EQ(json["lanes"]["upload"]["bytes"], 0);
  EXPECT_EQ(json["bottleneck"], Bottleneck(times));
  EXPECT_THAT(BenchText(options_, report), HasSubstr("bottleneck: " + Bottleneck(times)));
  EXPECT_FALSE(report.steps.empty());
  EXPECT_EQ(json["finished"], 5);
  EXPECT_GT(json["lanes"]["compute"]["busy_seconds"], 0.0);
}

TEST_F(RealBenchTest, BeginsFromMadeUpContext) {
  options_.start_context = 41;  // the prompt and two tokens are known, the last to be computed
  const BenchReport report = Run();
  EXPECT_EQ(report.prefill.tokens, 0);
  EXPECT_EQ(report.decode.tokens, 5 * 4);
  EXPECT_EQ(report.sweeps.size(), 4U);
  EXPECT_TRUE(report.is_cut);
  options_.start_context = 32;  // within the prompt
  EXPECT_EQ(Run().prefill.tokens, 5 * 8);
}

}  // namespace
}  // namespace nightshift
