#include "server/scheduling/run_planner.h"

#include <algorithm>
#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/policy/hardware_file.h"
#include "server/scheduling/model_speeds.h"
#include "server/scheduling/time_left.h"
#include "tests/support/plain_machines.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"
#include "tests/support/tiny_packs.h"

namespace nightshift {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kMiB = 1 << 20;

class RunPlannerTest : public ::testing::Test {
 protected:
  RunPlannerTest() {
    options_.hardware = PlainBox();
    base_.pack_path = TinyPack("llama");
    base_.memory_budget_bytes = 64 * kMiB;
    base_.max_block_requests = 4;
    base_.max_sweep_tokens = 64;
  }
  static std::vector<QueuedJob> Jobs(int64_t rows, int64_t prompt_tokens = 20) {
    return {{.rows = rows,
             .checked_rows = rows,
             .checked_tokens = rows * prompt_tokens,
             .longest_prompt = prompt_tokens,
             .all_checked = true,
             .limited_rows = rows,
             .limit_tokens = rows * 16,
             .longest_limit = 16,
             .max_output_tokens = 16}};
  }
  // A sweep of 4 decoding requests that computed for so long.
  static BlockSweep Sweep(int64_t compute_us) {
    BlockSweep sweep;
    sweep.tokens = 4;
    sweep.sampled_tokens = 4;
    sweep.spans = std::vector<ComputedSpan>(4, {.first_position = 30, .num_tokens = 1});
    sweep.times.sweeps = 1;
    sweep.times.wall_us = compute_us;
    sweep.times.lanes[static_cast<size_t>(LaneId::kCompute)].busy_us = compute_us;
    return sweep;
  }
  // Of a machine on which computing takes `factor` of what `planner` was told.
  static void Run(RunPlanner& planner, double factor, int sweeps) {
    for (int i = 0; i < sweeps; ++i) {
      const auto measured = planner.Observe(Sweep(0), 0);  // nothing to learn from
      ASSERT_TRUE(measured.has_value());
      const double seconds = measured->lanes[static_cast<size_t>(LaneId::kCompute)];
      ASSERT_GT(seconds, 1e-4) << "too short to be learned from";
      planner.Observe(Sweep(static_cast<int64_t>(1e6 * factor * seconds)), 0);
    }
  }
  // So slow that even a tiny model's sweeps take long enough to be told apart.
  static HardwareProfile SlowBox() {
    HardwareProfile box = PlainBox();
    box.device = PlainRates(1e9, 1e8);
    return box;
  }

  TemporaryFolder folder_;
  PlannerOptions options_;
  EngineOptions base_;
};

TEST_F(RunPlannerTest, WithoutAProfileTheOptionsHoldAndTheReasonSaysWhatToRun) {
  options_.hardware.reset();
  RunPlanner planner(options_);
  EXPECT_THAT(planner.state()->reason, HasSubstr("nightshift calibrate"));
  const EngineOptions options = planner.Begin("llama", base_, Jobs(100));
  EXPECT_EQ(options.max_block_requests, 4);
  EXPECT_EQ(planner.plan(), nullptr);
  EXPECT_THAT(planner.state()->reason, HasSubstr("nightshift calibrate"));
  EXPECT_EQ(planner.state()->model, "llama");
  EXPECT_EQ(planner.Next(Jobs(1000), 0), std::nullopt);
  EXPECT_EQ(planner.Observe(Sweep(100), 1), std::nullopt);
  EXPECT_EQ(planner.token_costs(), std::nullopt);
}

TEST_F(RunPlannerTest, PlansForTheQueueAndAgainWhenItGrows) {
  RunPlanner planner(options_);
  EXPECT_THAT(planner.state()->reason, HasSubstr("no model is loaded"));
  const EngineOptions few = planner.Begin("llama", base_, Jobs(6));
  ASSERT_NE(planner.plan(), nullptr);
  EXPECT_EQ(planner.state()->workload.requests(), 6);
  EXPECT_EQ(planner.Next(Jobs(5), 0), std::nullopt) << "it drains";
  const std::optional<EngineOptions> many = planner.Next(Jobs(2000), 0);
  ASSERT_TRUE(many.has_value());
  EXPECT_GT(many->max_block_requests, few.max_block_requests);
  EXPECT_EQ(planner.plan()->options.max_block_requests, few.max_block_requests)
      << "not before the engine has changed";
  planner.Changed();
  EXPECT_EQ(planner.plan()->options.max_block_requests, many->max_block_requests);
  EXPECT_EQ(planner.state()->workload.requests(), 2000);
  EXPECT_EQ(planner.counts().plans, 2);
  EXPECT_EQ(planner.counts().replans, 1);
  planner.End();
  EXPECT_EQ(planner.plan(), nullptr);
}

TEST_F(RunPlannerTest, PredictsAgainOnceTokensTakeThePlaceOfBytes) {
  RunPlanner planner(options_);
  const std::vector<QueuedJob> by_bytes = {
      {.rows = 100, .row_bytes = 400, .max_output_tokens = 16}};
  planner.Begin("llama", base_, by_bytes);
  const double before = planner.plan()->predicted.seconds;
  EXPECT_EQ(planner.Next(Jobs(100, 110), 0), std::nullopt) << "no reason for another plan";
  EXPECT_EQ(planner.state()->workload.mean_prompt_tokens(), 110.0);
  EXPECT_GT(planner.plan()->predicted.seconds, before);
  EXPECT_EQ(planner.counts().plans, 1);
}

TEST_F(RunPlannerTest, ALoadWithoutRoomIsPlannedOnceForLessAndThenNotAtAll) {
  options_.available_memory = [] { return 30 * kMiB; };
  RunPlanner planner(options_);
  planner.Begin("llama", base_, Jobs(1000));
  const EngineOptions less = planner.LoadRefused(absl::ResourceExhaustedError("no memory"));
  ASSERT_NE(planner.plan(), nullptr);
  EXPECT_LE(less.memory_budget_bytes, 30 * kMiB);
  EXPECT_EQ(planner.counts().failed_allocations, 1);
  const EngineOptions given = planner.LoadRefused(absl::ResourceExhaustedError("still none"));
  EXPECT_EQ(planner.plan(), nullptr);
  EXPECT_EQ(given.memory_budget_bytes, base_.memory_budget_bytes);
  EXPECT_EQ(given.max_block_requests, 4);
  EXPECT_THAT(planner.state()->reason, HasSubstr("still none"));
}

TEST_F(RunPlannerTest, ARefusedChangeLeavesThePlanThatRunsAndIsNotAskedForAgain) {
  RunPlanner planner(options_);
  const EngineOptions few = planner.Begin("llama", base_, Jobs(6));
  std::optional<EngineOptions> next = planner.Next(Jobs(2000), 0);
  ASSERT_TRUE(next.has_value());
  testing::internal::CaptureStderr();
  int tries = 0;
  while (next.has_value() && tries < 5) {
    next = planner.ChangeRefused(absl::ResourceExhaustedError("no memory"));
    ++tries;
  }
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_LE(tries, 2) << "planned once for less";
  EXPECT_THAT(log, HasSubstr("plan_kept"));
  EXPECT_THAT(log, HasSubstr("the plan before holds"));
  ASSERT_NE(planner.plan(), nullptr);
  EXPECT_EQ(planner.plan()->options.max_block_requests, few.max_block_requests);
  EXPECT_EQ(planner.Next(Jobs(2000), 0), std::nullopt);
}

TEST_F(RunPlannerTest, AfterAnEngineThatWasLostTheNextLoadTakesLess) {
  RunPlanner planner(options_);
  planner.Begin("llama", base_, Jobs(1000));
  planner.ChangeLost(absl::UnavailableError("no memory"));
  planner.End();
  EXPECT_LT(planner.Begin("llama", base_, Jobs(1000)).memory_budget_bytes,
            base_.memory_budget_bytes);
  planner.End();
  EXPECT_EQ(planner.Begin("llama", base_, Jobs(1000)).memory_budget_bytes,
            base_.memory_budget_bytes);
}

TEST_F(RunPlannerTest, LearnsFromSweepsForLaterPlansAndKeepsItBesideTheProfile) {
  options_.hardware = SlowBox();
  options_.refinement_path = folder_.path() + "/refinement.json";
  double first_s = 0.0;
  {
    RunPlanner planner(options_);
    planner.Begin("llama", base_, Jobs(1000));
    first_s = planner.plan()->predicted.seconds;
    Run(planner, 1.8, 40);
    EXPECT_GT(planner.pace().ratio(), 1.0);
    planner.Next(Jobs(1000), 0);  // what was learned is reason enough to look again
    EXPECT_NEAR(planner.plan()->predicted.seconds / first_s, 1.8, 0.05);
    EXPECT_NEAR(planner.state()->hardware->refinement.Factor(LaneId::kCompute), 1.8, 0.01);
    planner.Save();
  }
  RunPlanner later(options_);
  later.Begin("llama", base_, Jobs(1000));
  EXPECT_NEAR(later.plan()->predicted.seconds / first_s, 1.8, 0.05);
  EXPECT_EQ(later.state()->hardware->device.step_seconds, options_.hardware->device.step_seconds)
      << "what was measured stays as it is";
  options_.hardware->copy_bytes_per_s *= 2.0;  // measured anew
  RunPlanner anew(options_);
  anew.Begin("llama", base_, Jobs(1000));
  EXPECT_NEAR(anew.plan()->predicted.seconds / first_s, 1.0, 1e-9);
}

TEST_F(RunPlannerTest, TokenCostsAddUpToThePlansTime) {
  RunPlanner planner(options_);
  planner.Begin("llama", base_, Jobs(1000));
  const std::optional<TokenCosts> costs = planner.token_costs();
  ASSERT_TRUE(costs.has_value());
  EXPECT_NEAR(1000 * (20 * costs->prompt_seconds + 16 * costs->output_seconds),
              planner.plan()->predicted.seconds, 1e-6);
  EXPECT_GT(costs->output_seconds, costs->prompt_seconds);
}

TEST_F(RunPlannerTest, CountsHowJobsWerePredicted) {
  RunPlanner planner(options_);
  for (const double ratio : {0.5, 0.9, 1.1, 0.8}) {
    planner.JobEnded(ratio);
  }
  EXPECT_EQ(planner.counts().predicted_jobs, 4);
  EXPECT_DOUBLE_EQ(planner.counts().last_time_ratio, 0.8);
  EXPECT_DOUBLE_EQ(planner.counts().median_time_ratio, 0.85);
}

TEST_F(RunPlannerTest, PlansForOtherWorkWithoutTouchingWhatRuns) {
  RunPlanner planner(options_);
  planner.Begin("llama", base_, Jobs(6));
  WorkloadProfile work;
  work.classes = {{.prompt_tokens = 30, .output_tokens = 30, .requests = 500}};
  const auto plan = [&](const EngineOptions& base) {
    return PlanOtherWork("llama", base, {}, *planner.state(), work);
  };
  ASSERT_OK_AND_ASSIGN(const PolicyState state, plan(base_));
  ASSERT_TRUE(state.plan.has_value());
  EXPECT_EQ(state.workload.requests(), 500);
  EXPECT_EQ(planner.state()->workload.requests(), 6);
  EngineOptions small = base_;
  small.memory_budget_bytes = 1000;
  ASSERT_OK_AND_ASSIGN(const PolicyState nowhere, plan(small));
  EXPECT_FALSE(nowhere.plan.has_value());
  EXPECT_THAT(nowhere.reason, HasSubstr("lacks"));
  work.classes[0].prompt_tokens = 1'000'000;
  EXPECT_THAT(plan(base_), StatusIs(absl::StatusCode::kInvalidArgument, ""));
}

TEST(PaceTest, BelievesThePlanAtFirstAndSweepsLater) {
  Pace pace;
  EXPECT_EQ(pace.ratio(), 1.0);
  EXPECT_NEAR(pace.uncertainty(), 0.35, 1e-9);
  pace.Add(0.5, 1.0);
  EXPECT_GT(pace.ratio(), 1.0);
  EXPECT_LT(pace.ratio(), 1.5);
  for (int i = 0; i < 1000; ++i) {
    pace.Add(1.0, 1.5);
  }
  EXPECT_NEAR(pace.ratio(), 1.5, 0.02);
  EXPECT_NEAR(pace.uncertainty(), 0.1, 0.01);
  for (int i = 0; i < 3000; ++i) {
    pace.Add(1.0, 0.8);  // another machine by now
  }
  EXPECT_NEAR(pace.ratio(), 0.8, 0.02);
}

TEST(ModelSpeedsTest, AJobAloneTakesItsTokensTimesTheirCost) {
  const TokensLeft left = {.prompt = 100, .output = 50, .least_output = 10};
  const ModelKey model = {.model = "a"};
  ModelSpeeds speeds;
  speeds.Loaded(model, 1000, 3.0);
  EXPECT_FALSE(speeds.Knows(model));
  speeds.Note(model, {.prompt_seconds = 0.02, .output_seconds = 0.2}, 0.25);
  EXPECT_TRUE(speeds.Knows(model));
  const TimeLeft alone = speeds.Alone(model, 1000, left);
  EXPECT_DOUBLE_EQ(alone.seconds, 12.0);
  EXPECT_DOUBLE_EQ(alone.least_seconds, 4.0 / 1.25);
  EXPECT_DOUBLE_EQ(alone.most_seconds, 15.0);
}

TEST(ModelSpeedsTest, AModelThatWasNeverLoadedIsGuessedByItsSizeAndOneThatWasIsRemembered) {
  const TokensLeft left = {.prompt = 0, .output = 10, .least_output = 10};
  const ModelKey before = {.model = "before"};
  const ModelKey now = {.model = "now"};
  const ModelKey never = {.model = "never"};
  ModelSpeeds speeds;
  speeds.Loaded(before, 1000, 3.0);
  speeds.Note(before, {.prompt_seconds = 1.0, .output_seconds = 1.0}, 0.0);
  speeds.Loaded(now, 500, 2.0);
  speeds.Note(now, {.prompt_seconds = 0.1, .output_seconds = 0.1}, 0.0);
  EXPECT_DOUBLE_EQ(speeds.Alone(before, 1000, left).seconds, 10.0);
  EXPECT_DOUBLE_EQ(speeds.LoadSeconds(before), 3.0);
  EXPECT_FALSE(speeds.Knows(never));
  EXPECT_DOUBLE_EQ(speeds.Alone(never, 2000, left).seconds, 4.0);
  EXPECT_GT(speeds.Alone(never, 2000, left).most_seconds, 8.0);
  EXPECT_DOUBLE_EQ(speeds.LoadSeconds(never), 2.0);
}

class TimesLeftTest : public ::testing::Test {
 protected:
  TimesLeftTest() {
    state_.models = {{.key = {.model = "loaded"}, .loaded_us = 1, .load_seconds = 10.0},
                     {.key = {.model = "other"}, .loaded_us = 0, .load_seconds = 10.0}};
    state_.loaded = 0;
    state_.slice_seconds = 300.0;
    state_.slice_left_seconds = 100.0;
  }
  // In the order in which they should run.
  void Add(const std::string& id, double seconds, int32_t priority = 0, size_t model = 0) {
    jobs_.push_back(
        {.id = id,
         .model = model,
         .priority = priority,
         .alone = {.seconds = seconds, .least_seconds = seconds, .most_seconds = 2.0 * seconds}});
  }
  double SecondsOf(const std::string& id) const { return TimesLeft(jobs_, state_).at(id).seconds; }

  std::vector<JobLeft> jobs_;
  QueueState state_;
};

TEST_F(TimesLeftTest, JobsShareWithTheirPriorityAndWaitForHigherOnes) {
  Add("high", 7, 3);
  Add("short", 10, 2);
  Add("long", 100, 2);
  Add("low", 5, 1);
  EXPECT_DOUBLE_EQ(SecondsOf("high"), 7.0);
  EXPECT_DOUBLE_EQ(SecondsOf("short"), 7.0 + 20.0);
  EXPECT_DOUBLE_EQ(SecondsOf("long"), 7.0 + 110.0);
  EXPECT_DOUBLE_EQ(SecondsOf("low"), 7.0 + 110.0 + 5.0);
  EXPECT_DOUBLE_EQ(TimesLeft(jobs_, state_).at("low").most_seconds, 2 * 122.0);
  EXPECT_TRUE(TimesLeft({}, state_).empty());
}

TEST_F(TimesLeftTest, ModelsTakeTurnsAndTheirLoadsCount) {
  Add("here", 250);
  Add("there", 350, 0, 1);
  // 100 here, load, 300 there, load, 150 here, load, 50 there.
  EXPECT_DOUBLE_EQ(SecondsOf("here"), 100.0 + 10.0 + 300.0 + 10.0 + 150.0);
  EXPECT_DOUBLE_EQ(SecondsOf("there"), 570.0 + 10.0 + 50.0);
}

TEST_F(TimesLeftTest, AHigherPriorityOfAnotherModelTakesOverAtOnceAndALowerOneWaits) {
  Add("first", 20, 1, 1);
  Add("second", 1000);
  Add("last", 5, -1, 1);
  EXPECT_DOUBLE_EQ(SecondsOf("first"), 10.0 + 20.0);
  EXPECT_DOUBLE_EQ(SecondsOf("second"), 30.0 + 10.0 + 1000.0);
  EXPECT_DOUBLE_EQ(SecondsOf("last"), 1040.0 + 10.0 + 5.0);
}

TEST_F(TimesLeftTest, AJobThatMayRunAtNightTakesNightsAndLeavesTheDayToOthers) {
  constexpr double kHour = 3600.0;
  ASSERT_OK_AND_ASSIGN(const RunWindow night, RunWindow::Parse("00:00-01:00 UTC"));
  const JobCalendar at_night = {.window = night};
  const JobCalendar later = {.not_before_us = int64_t{3} * 3600 * 1'000'000, .window = {}};
  state_.now_us = int64_t{1800} * 1'000'000;
  Add("nightly", kHour, 1);
  jobs_.back().calendar = &at_night;
  Add("whenever", 2 * kHour);
  Add("later", 60);
  jobs_.back().calendar = &later;
  EXPECT_NEAR(SecondsOf("nightly"), 24 * kHour, 1e-3);
  EXPECT_NEAR(SecondsOf("whenever"), 2.5 * kHour, 1e-3);
  EXPECT_NEAR(SecondsOf("later"), 2.5 * kHour + 60, 1e-3);
}

}  // namespace
}  // namespace nightshift
