#include "engine/policy/policy_search.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "engine/model/known_shapes.h"
#include "engine/model/shape_manifest.h"
#include "engine/policy/flexgen_cost.h"
#include "engine/policy/known_hardware.h"
#include "engine/policy/nightshift_cost.h"
#include "engine/policy/program_cache.h"
#include "tests/support/status_matchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nightshift {
namespace {

using enum ShareId;
using ::testing::Contains;
using ::testing::Field;
using ::testing::HasSubstr;

constexpr double kGibibyte = 1 << 30;
constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
constexpr auto kExhausted = absl::StatusCode::kResourceExhausted;

// FlexGen's machine with a T4, 512 prompt and 32 output tokens.
FlexGenOptions OptionsFor(const std::string& shape, FlexGenForm form) {
  return {.form = form,
          .shape = FlexGenShapeOf(FindKnownShape(shape)->config).value(),
          .prompt_tokens = 512,
          .output_tokens = 32,
          .rates = ShippedFlexGenRates(),
          .tier_bytes = {15 * kGibibyte, 200 * kGibibyte, 1500 * kGibibyte}};
}

std::unique_ptr<FlexGenCost> CostOf(const FlexGenOptions& options) {
  return FlexGenCost::Create(options).value();
}

// As the released search: endless prompts, a fifth of each memory free, attention on the host.
SearchSpace ReleasedSpace() {
  SearchSpace space;
  space.requests = 1 << 14;
  space.host_attention = true;
  space.margin = 0.2;
  return space;
}

SearchSpace JobSpace(int64_t requests) {
  SearchSpace space;
  space.requests = requests;
  return space;
}

double Real(int64_t value) {
  return static_cast<double>(value);
}

double TokensPerSecond(const SearchResult& result) {
  return 32 / result.best.solution.seconds_per_request;
}

// What the released search finds with its shipped constants.
TEST(PolicySearchTest, FindsAtLeastWhatTheReleasedSearchFinds) {
  for (const auto& [shape, tokens_per_s] :
       {std::pair("opt-6.7b", 28.179), std::pair("opt-30b", 7.0750),
        std::pair("opt-175b", 0.16925)}) {
    const auto cost = CostOf(OptionsFor(shape, FlexGenForm::kReleased));
    ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchBest(*cost, ReleasedSpace()));
    EXPECT_GE(TokensPerSecond(result), 0.99 * tokens_per_s) << shape;
  }
}

TEST(PolicySearchTest, ALargeModelTakesFewLinearPrograms) {
  FlexGenOptions options = OptionsFor("opt-175b", FlexGenForm::kPaper);
  options.requests = 10000;
  const auto cost = CostOf(options);
  SearchSpace space = JobSpace(10000);
  space.weights = {DType::kF16, DType::kU4G64};
  space.kv = {DType::kF16, DType::kU4G64};
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchPolicy(*cost, space));
  EXPECT_LE(result.num_programs, 1000);
}

struct RandomCase {
  FlexGenOptions options;
  SearchSpace space;
};

RandomCase MakeRandomCase(std::mt19937_64& random) {
  const auto draw = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>()(random));
  };
  const auto draw_count = [&](int64_t low, int64_t high) {
    return static_cast<int64_t>(draw(static_cast<double>(low), static_cast<double>(high)));
  };
  const char* shapes[] = {"opt-1.3b", "opt-6.7b", "opt-30b", "opt-175b", "llama-3-8b", "qwen2-72b"};
  RandomCase drawn;
  drawn.options = OptionsFor(shapes[random() % std::size(shapes)],
                             random() % 2 == 0 ? FlexGenForm::kPaper : FlexGenForm::kReleased);
  drawn.options.prompt_tokens = draw_count(16, 2048);
  drawn.options.output_tokens = draw_count(1, 512);
  drawn.options.requests = draw_count(1, 5000);
  drawn.options.tier_bytes = {draw(4e9, 8e10), draw(1.6e10, 1e12), draw(1e11, 4e12)};
  FlexGenRates& rates = drawn.options.rates;
  for (double* rate : {&rates.upload, &rates.download_kv, &rates.download_activations, &rates.read,
                       &rates.write_prompt_kv, &rates.write_prompt_activations, &rates.write_decode,
                       &rates.prompt_matmul, &rates.decode_matmul, &rates.prompt_attention,
                       &rates.decode_attention, &rates.host_attention, &rates.unpacked_elements}) {
    *rate *= draw(0.2, 20);
  }
  drawn.space = JobSpace(drawn.options.requests);
  drawn.space.weights = {DType::kF16, DType::kU4G64};
  drawn.space.kv = {DType::kF16, DType::kU4G64};
  return drawn;
}

// The least time per request over blocks and batches in steps of about a third.
double BestOfGrid(const CostModel& cost, const SearchSpace& space) {
  double best = std::numeric_limits<double>::infinity();
  BlockChoice choice;
  const auto next = [](int64_t size) { return std::max(size + 1, size * 4 / 3); };
  for (const DType weights : space.weights) {
    for (const DType kv : space.kv) {
      for (const bool host_attention : {false, true}) {
        for (int64_t block = 1; block <= space.requests; block = next(block)) {
          for (int64_t batch = 1; batch <= block; batch = 3 * next(batch)) {
            choice = {block, batch, 0, weights, kv, host_attention};
            const auto program = ProgramOf(cost, space, choice);
            const auto seconds = program.ok() ? LeastSecondsPerRequest(*program) : program.status();
            if (!seconds.ok()) {
              break;  // a larger batch holds more
            }
            best = std::min(best, *seconds);
          }
        }
      }
    }
  }
  return best;
}

TEST(PolicySearchTest, IsWithinFivePerCentOfAnExhaustiveGrid) {
  std::mt19937_64 random(11);
  int num_feasible = 0;
  for (int i = 0; i < 50; ++i) {
    const RandomCase drawn = MakeRandomCase(random);
    const auto cost = CostOf(drawn.options);
    const auto result = SearchBest(*cost, drawn.space);
    const double best = BestOfGrid(*cost, drawn.space);
    ASSERT_EQ(result.ok(), std::isfinite(best)) << i << " " << result.status();
    if (result.ok()) {
      EXPECT_LE(result->best.solution.seconds_per_request, 1.05 * best) << i;
      ++num_feasible;
    }
  }
  EXPECT_GE(num_feasible, 25);
}

// The cost of this engine is less smooth than FlexGen's: sweeps are cut by rows.
TEST(PolicySearchTest, IsWithinFivePerCentOfAGridByTheModelOfThisEngine) {
  std::mt19937_64 random(21);
  const auto draw = [&](double low, double high) {
    return low * std::pow(high / low, std::uniform_real_distribution<double>()(random));
  };
  const char* machines[] = {"t4", "a10g", "rtx-4090", "desktop-avx512"};
  const char* shapes[] = {"opt-6.7b", "opt-30b", "llama-3-8b"};
  int num_feasible = 0;
  for (int i = 0; i < 50; ++i) {
    HardwareProfile hardware = KnownHardware(machines[random() % std::size(machines)]).value();
    hardware.host_bytes = static_cast<int64_t>(draw(0.1, 1) * Real(hardware.host_bytes));
    for (RatePoint& point : hardware.disk_read.points) {
      point.rate *= draw(0.5, 2);
    }
    const char* shape = shapes[random() % std::size(shapes)];
    NightshiftModel model{.name = shape, .forms = {}};
    model.forms[DType::kBF16] = ManifestOf(FindKnownShape(shape).value(), DType::kBF16);
    WorkloadProfile workload;
    SearchSpace space = JobSpace(static_cast<int64_t>(draw(10, 1000)));
    workload.classes = {
        {static_cast<int64_t>(draw(32, 800)), static_cast<int64_t>(draw(1, 64)), space.requests}};
    ASSERT_OK_AND_ASSIGN(const auto cost,
                         NightshiftCost::Create(model, ComputeType::kBF16, hardware, workload));
    const ProgramCache programs(*cost);
    const auto result = SearchBest(programs, space);
    const double best = BestOfGrid(programs, space);
    ASSERT_EQ(result.ok(), std::isfinite(best)) << i << " " << result.status();
    if (result.ok()) {
      EXPECT_LE(result->best.solution.seconds_per_request, 1.05 * best) << i;
      ++num_feasible;
    }
  }
  EXPECT_GE(num_feasible, 30);
}

TEST(PolicySearchTest, TheSameArgumentsGiveTheSameResult) {
  std::mt19937_64 random(12);
  const RandomCase drawn = MakeRandomCase(random);
  const auto cost = CostOf(drawn.options);
  ASSERT_OK_AND_ASSIGN(const SearchResult first, SearchPolicy(*cost, drawn.space));
  ASSERT_OK_AND_ASSIGN(const SearchResult second, SearchPolicy(*cost, drawn.space));
  EXPECT_EQ(first.best.choice.block_requests, second.best.choice.block_requests);
  EXPECT_EQ(first.best.choice.batch_requests, second.best.choice.batch_requests);
  EXPECT_EQ(first.best.solution.shares, second.best.solution.shares);
  EXPECT_EQ(first.num_programs, second.num_programs);
}

TEST(PolicySearchTest, AJobSmallerThanABlockIsPlannedForThatJob) {
  FlexGenOptions options = OptionsFor("opt-30b", FlexGenForm::kPaper);
  options.requests = 7;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchBest(*CostOf(options), JobSpace(7)));
  EXPECT_EQ(result.best.choice.block_requests, 7);
  EXPECT_EQ(result.best.program.requests, 7);
}

TEST(PolicySearchTest, AJobIsCutIntoEqualBlocks) {
  FlexGenOptions options = OptionsFor("opt-30b", FlexGenForm::kPaper);
  options.requests = 997;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchBest(*CostOf(options), JobSpace(997)));
  const int64_t block = result.best.choice.block_requests;
  const int64_t blocks = (997 + block - 1) / block;
  EXPECT_GT(blocks, 1);
  EXPECT_EQ(block, (997 + blocks - 1) / blocks);
}

// Prompts that are only scored are bound by computing for many blocks.
TEST(PolicySearchTest, AmongEqualSizesTheLargestThatStaysOffTheDiskIsTaken) {
  FlexGenOptions options = OptionsFor("opt-30b", FlexGenForm::kPaper);
  options.output_tokens = 0;
  SearchSpace space = JobSpace(1 << 12);
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchBest(*CostOf(options), space));
  const Shares& shares = result.best.solution.shares;
  EXPECT_EQ(shares[2] + shares[5] + shares[8], 0);
  space.block_requests = 2 * result.best.choice.block_requests;
  ASSERT_OK_AND_ASSIGN(const SearchResult larger, SearchBest(*CostOf(options), space));
  const Shares& spread = larger.best.solution.shares;
  EXPECT_GT(spread[2] + spread[5] + spread[8], 0);
}

TEST(PolicySearchTest, WhatTheUserFixedStays) {
  const auto cost = CostOf(OptionsFor("opt-30b", FlexGenForm::kPaper));
  SearchSpace space = JobSpace(1000);
  space.block_requests = 60;
  space.batch_requests = 12;
  space.host_attention = false;
  space.shares[static_cast<size_t>(kWeightsDevice)] = 0.1;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchPolicy(*cost, space));
  EXPECT_EQ(result.best.choice.block_requests, 60);
  EXPECT_EQ(result.best.choice.batch_requests, 12);
  EXPECT_FALSE(result.best.choice.host_attention);
  EXPECT_EQ(result.best.solution.shares[0], 0.1);
}

TEST(PolicySearchTest, ABoundOnLatencyIsKeptAndCostsThroughput) {
  const auto cost = CostOf(OptionsFor("opt-30b", FlexGenForm::kPaper));
  SearchSpace space = JobSpace(1000);
  ASSERT_OK_AND_ASSIGN(const SearchResult free, SearchBest(*cost, space));
  space.max_held_seconds = 0.6 * free.best.solution.seconds;
  ASSERT_OK_AND_ASSIGN(const SearchResult bound, SearchBest(*cost, space));
  EXPECT_LE(bound.best.solution.seconds, *space.max_held_seconds * (1 + 1e-6));
  EXPECT_GT(bound.best.solution.seconds_per_request, free.best.solution.seconds_per_request);
  EXPECT_LT(bound.best.choice.block_requests, free.best.choice.block_requests);
}

TEST(PolicySearchTest, ADeadlineThatCannotBeMetTellsTheLeastTime) {
  const auto cost = CostOf(OptionsFor("opt-30b", FlexGenForm::kPaper));
  SearchSpace space = JobSpace(1000);
  space.deadline_seconds = 24 * 3600;
  EXPECT_OK(SearchBest(*cost, space));
  space.deadline_seconds = 60;
  EXPECT_THAT(SearchBest(*cost, space), StatusIs(kExhausted, "no placement is fast enough"));
  space.deadline_seconds.reset();
  space.max_held_seconds = 1e-3;
  EXPECT_THAT(SearchBest(*cost, space), StatusIs(kExhausted, "a request takes at least"));
}

TEST(PolicySearchTest, AMarginLeavesMemoryFree) {
  const auto cost = CostOf(OptionsFor("opt-175b", FlexGenForm::kPaper));
  SearchSpace space = JobSpace(1000);
  space.margin = 0.25;
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchBest(*cost, space));
  for (size_t i = 0; i < result.best.program.capacities.size(); ++i) {
    const auto tier = static_cast<size_t>(result.best.program.capacities[i].tier);
    const double bytes[] = {15 * kGibibyte, 200 * kGibibyte, 1500 * kGibibyte};
    EXPECT_LE(result.best.solution.capacity_bytes[i], 0.75 * bytes[tier] * (1 + 1e-6));
  }
}

TEST(PolicySearchTest, AlternativesDifferInOneRespectAndAreNoBetter) {
  const auto cost = CostOf(OptionsFor("opt-30b", FlexGenForm::kReleased));
  SearchSpace space = JobSpace(5000);
  space.weights = {DType::kF16, DType::kU4G64};
  space.kv = {DType::kF16, DType::kU4G64};
  ASSERT_OK_AND_ASSIGN(const SearchResult result, SearchPolicy(*cost, space));
  for (const char* what :
       {"weights in ", "keys and values in ", "attention on the ", "a block of ", "batches of "}) {
    EXPECT_THAT(result.alternatives, Contains(Field(&Alternative::what, HasSubstr(what))));
  }
  for (const Alternative& alternative : result.alternatives) {
    if (alternative.solved.ok()) {
      EXPECT_GE(alternative.solved->solution.seconds_per_request,
                result.best.solution.seconds_per_request * (1 - 1e-6))
          << alternative.what;
    } else {
      EXPECT_THAT(alternative.solved, StatusIs(kExhausted, " lacks ")) << alternative.what;
    }
  }
}

TEST(PolicySearchTest, WhereNothingFitsItTellsWhatIsLacking) {
  FlexGenOptions options = OptionsFor("opt-175b", FlexGenForm::kPaper);
  options.tier_bytes = {15 * kGibibyte, 64 * kGibibyte, 100 * kGibibyte};
  EXPECT_THAT(SearchPolicy(*CostOf(options), JobSpace(100)),
              StatusIs(kExhausted, "the disk lacks 1"));
  options.tier_bytes = {0, 0, 0};
  EXPECT_THAT(SearchPolicy(*CostOf(options), JobSpace(100)),
              StatusIs(kExhausted, "the device lacks"));
  options.tier_bytes = {4, 4, 4};
  EXPECT_THAT(SearchPolicy(*CostOf(options), JobSpace(100)),
              StatusIs(kExhausted, "the device lacks"));
}

TEST(PolicySearchTest, ASpaceThatTheModelCannotDescribeIsRefusedInItsWords) {
  const auto cost = CostOf(OptionsFor("opt-30b", FlexGenForm::kPaper));
  SearchSpace space = JobSpace(100);
  space.chunk_tokens = {64};
  EXPECT_THAT(SearchPolicy(*cost, space), StatusIs(kInvalid, "chunks of 64 tokens"));
}

TEST(PolicySearchTest, NonsenseIsRefusedByName) {
  const auto cost = CostOf(OptionsFor("opt-30b", FlexGenForm::kPaper));
  const auto refusal = [&](void (*change)(SearchSpace&)) {
    SearchSpace space = JobSpace(100);
    change(space);
    return SearchPolicy(*cost, space).status();
  };
  EXPECT_THAT(refusal([](SearchSpace& s) { s.requests = 0; }),
              StatusIs(kInvalid, "the number of requests is 0"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.weights.clear(); }),
              StatusIs(kInvalid, "types of weights is 0"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.block_requests = 101; }),
              StatusIs(kInvalid, "the block is 101"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.batch_requests = -1; }),
              StatusIs(kInvalid, "the batch is -1"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.deadline_seconds = -1; }),
              StatusIs(kInvalid, "a bound on seconds is -1"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.deadline_seconds = 0.0 / 0.0; }),
              StatusIs(kInvalid, "a bound on seconds is nan"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.margin = 1; }), StatusIs(kInvalid, "margin is 1"));
  EXPECT_THAT(refusal([](SearchSpace& s) { s.shares[2] = 3; }),
              StatusIs(kInvalid, "weights on disk is 3"));
}

}  // namespace
}  // namespace nightshift
