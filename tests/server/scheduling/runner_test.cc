#include "server/scheduling/runner.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

#include "server/input/rpc_error.h"
#include "server/scheduling/claim_window.h"
#include "server/scheduling/preflight.h"
#include "server/scheduling/progress.h"
#include "server/scheduling/request_options.h"
#include "tests/support/plain_machines.h"
#include "tests/support/runner_world.h"
#include "tests/support/status_matchers.h"
#include "tests/support/temporary_folder.h"

#include "google/rpc/error_details.pb.h"

namespace nightshift {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

std::string ReasonOf(const v1::Result& result) {
  google::rpc::ErrorInfo info;
  return result.error().details_size() > 0 && result.error().details(0).UnpackTo(&info)
             ? info.reason()
             : "";
}

class RunnerTest : public ::testing::TestWithParam<StoreKind> {
 protected:
  RunnerTest() : world_(GetParam()) {}

  // Rows whose prompts differ in length and tokens.
  static std::vector<InputRow> MakeRows(int64_t count, const std::string& options = "") {
    std::vector<InputRow> rows;
    for (int64_t i = 0; i < count; ++i) {
      std::vector<int32_t> prompt;
      for (int64_t t = 0; t < 1 + i % 13; ++t) {
        prompt.push_back(static_cast<int32_t>(20 + (i * 31 + t * 7) % 300));
      }
      rows.push_back(TokenRow(absl::StrCat("row-", i), std::move(prompt), options));
    }
    return rows;
  }
  static v1::JobSpec Spec(int64_t max_output_tokens, uint64_t seed = 1) {
    v1::JobSpec spec;
    spec.mutable_sampling()->set_max_output_tokens(max_output_tokens);
    spec.mutable_sampling()->set_seed(seed);
    return spec;
  }
  static v1::JobSpec RejectingSpec(int64_t max_output_tokens) {
    v1::JobSpec spec = Spec(max_output_tokens);
    spec.set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
    return spec;
  }
  FakeCompletion Expected(const InputRow& row, const v1::JobSpec& spec) const {
    return CompleteFake(row.prompt, ResolveSampling(spec.sampling(), 0),
                        world_.fake_engine.context_tokens);
  }
  // Every row has the completion of an undisturbed run.
  void ExpectCompletions(const std::string& job_id, const std::vector<InputRow>& rows,
                         const v1::JobSpec& spec) {
    const std::vector<v1::Result> results = world_.Results(job_id);
    ASSERT_EQ(results.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const FakeCompletion expected = Expected(rows[i], spec);
      ASSERT_TRUE(results[i].has_completion()) << i << ": " << results[i].error().message();
      const v1::Completion& completion = results[i].completion();
      EXPECT_EQ(completion.text(), expected.text) << i;
      EXPECT_THAT(
          std::vector<int32_t>(completion.token_ids().begin(), completion.token_ids().end()),
          ::testing::ElementsAreArray(expected.sampled.begin(),
                                      expected.sampled.begin() + expected.kept_tokens));
      EXPECT_EQ(completion.usage().prompt_tokens(), static_cast<int64_t>(rows[i].prompt.size()));
      EXPECT_EQ(completion.usage().output_tokens(), static_cast<int64_t>(expected.sampled.size()));
      EXPECT_EQ(completion.usage().cached_tokens(), static_cast<int64_t>(rows[i].prompt.size()) / 2)
          << "as the fake engine says";
      EXPECT_EQ(results[i].custom_id(), absl::StrCat("row-", i));
      EXPECT_EQ(results[i].line(), static_cast<int64_t>(i) + 1);
    }
  }
  // Every row has the completions of an undisturbed run, each choice from its own seed stream.
  void ExpectChoices(const std::string& job_id, const std::vector<InputRow>& rows,
                     const v1::JobSpec& spec) {
    const std::vector<v1::Result> results = world_.Results(job_id);
    ASSERT_EQ(results.size(), rows.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      ASSERT_TRUE(results[i].has_completion()) << i << ": " << results[i].error().message();
      const v1::Completion& completion = results[i].completion();
      ASSERT_EQ(completion.further_choices_size() + 1, spec.sampling().num_choices());
      int64_t output_tokens = 0;
      for (int choice = 0; choice < spec.sampling().num_choices(); ++choice) {
        SamplingParams sampling = ResolveSampling(spec.sampling(), 0);
        sampling.choice = static_cast<uint32_t>(choice);
        const FakeCompletion expected =
            CompleteFake(rows[i].prompt, sampling, world_.fake_engine.context_tokens);
        EXPECT_EQ(choice == 0 ? completion.text() : completion.further_choices(choice - 1).text(),
                  expected.text)
            << "row " << i << " choice " << choice;
        output_tokens += static_cast<int64_t>(expected.sampled.size());
      }
      EXPECT_EQ(completion.usage().output_tokens(), output_tokens);
      EXPECT_EQ(completion.usage().prompt_tokens(), static_cast<int64_t>(rows[i].prompt.size()));
    }
  }
  static v1::JobSpec ChoicesSpec(int64_t max_output_tokens, int32_t num_choices) {
    v1::JobSpec spec = Spec(max_output_tokens);
    spec.mutable_sampling()->set_temperature(1.0);
    spec.mutable_sampling()->set_num_choices(num_choices);
    return spec;
  }
  // `count` rows of which a choice has ended after 15 sweeps while another goes on after 35.
  std::vector<InputRow> UnevenRows(size_t count, const v1::JobSpec& spec) {
    std::vector<InputRow> rows;
    for (InputRow& row : MakeRows(300)) {
      size_t shortest = SIZE_MAX;
      size_t longest = 0;
      for (int choice = 0; choice < spec.sampling().num_choices(); ++choice) {
        SamplingParams sampling = ResolveSampling(spec.sampling(), 0);
        sampling.choice = static_cast<uint32_t>(choice);
        const size_t tokens =
            CompleteFake(row.prompt, sampling, world_.fake_engine.context_tokens).sampled.size();
        shortest = std::min(shortest, tokens);
        longest = std::max(longest, tokens);
      }
      if (rows.size() < count && shortest <= 15 && longest > 35) {
        rows.push_back(std::move(row));
      }
    }
    EXPECT_EQ(rows.size(), count);
    return rows;
  }
  // Stops the daemon inside a sweep, as SIGTERM would.
  void DrainDuringSweep() {
    world_.control.WaitForHeldSweep();
    std::atomic<bool> began = false;
    std::atomic<bool> drained = false;
    std::thread drain([&] {
      began = true;
      world_.runner().Drain();
      drained = true;
    });
    // One sweep at a time: freed, they would end the job before the drain is heard of.
    while (!drained) {
      if (began) {
        world_.control.AllowHeldSweep();
      }
      std::this_thread::yield();
    }
    drain.join();
    world_.control.ReleaseSweeps();
    world_.Stop();
  }
  int64_t NumTriedTwice(const std::string& job_id) {
    int64_t count = 0;
    for (const v1::Result& result : world_.Results(job_id)) {
      count += result.completion().attempt() == 2 ? 1 : 0;
    }
    return count;
  }
  // A job that runs alone, until a sweep of it waits.
  void StartHeldJob(const std::string& job_id, const std::vector<InputRow>& rows,
                    const v1::JobSpec& spec) {
    world_.control.HoldSweeps();
    world_.Start();
    world_.Submit(job_id, rows, spec);
    world_.control.WaitForHeldSweep();
  }
  // Lets sweeps go on one by one, and what they leave to the store and the preparer settle between
  // them, until the job has ended. The engine has work for longer.
  void StepUntilEnd(const std::string& job_id) {
    while (!IsTerminal(world_.Job(job_id).state)) {
      world_.Settle();
      world_.control.AllowHeldSweep();
      world_.control.WaitForHeldSweep();
    }
  }
  // Lets time pass until then.
  void AdvanceUntil(const std::function<bool()>& reached) {
    while (!reached()) {
      world_.clock.Advance(1'000'000);
      world_.Settle();
      std::this_thread::yield();
    }
  }
  void AdvanceUntilEnd(const std::string& job_id) {
    AdvanceUntil([&] { return IsTerminal(world_.Job(job_id).state); });
  }
  std::vector<std::string> CreatedModels() {
    std::vector<std::string> models;
    for (const auto& created : world_.control.created()) {
      models.push_back(created.pack_path.substr(created.pack_path.rfind('/') + 1));
    }
    return models;
  }

  RunnerWorld world_;
};

TEST_P(RunnerTest, APausedJobLeavesTheEngineWithItsTokensAndOthersGoOn) {
  const std::vector<InputRow> rows = MakeRows(8);
  StartHeldJob("paused", rows, Spec(60));
  world_.control.AllowSweeps(5);
  world_.control.WaitForHeldSweep();
  world_.Write("paused", [](JobStore& store) { return store.PauseJob("paused"); });
  world_.control.ReleaseSweeps();
  world_.Submit("other", MakeRows(3), Spec(4));
  EXPECT_EQ(world_.WaitForEnd("other").state, JobState::kSucceeded);
  const JobRecord paused =
      world_.WaitUntil("paused", [](const JobRecord& job) { return job.counts.running == 0; });
  EXPECT_EQ(paused.state, JobState::kPaused);
  EXPECT_GT(paused.counts.pending, 0);
  int64_t with_progress = 0;
  for (const ClaimedRow& row : world_.UnfinishedAfterCrash("paused")) {
    with_progress += row.progress.empty() ? 0 : 1;
  }
  EXPECT_EQ(with_progress, paused.counts.pending);
  world_.Write("paused", [](JobStore& store) { return store.ResumeJob("paused"); });
  EXPECT_EQ(world_.WaitForEnd("paused").state, JobState::kSucceeded);
  ExpectCompletions("paused", rows, Spec(60));
  EXPECT_EQ(NumTriedTwice("paused"), 0) << "a pause is no failure";
}

TEST_P(RunnerTest, AJobRunsInItsWindowAndIsSuspendedOutsideOfIt) {
  const std::vector<InputRow> rows = MakeRows(8);
  v1::JobSpec spec = Spec(60);
  spec.set_run_window("22:00-23:00 UTC");  // the fake clock begins at 22:13
  StartHeldJob("night", rows, spec);
  world_.control.AllowSweeps(3);
  world_.control.WaitForHeldSweep();
  world_.clock.Advance(int64_t{3600} * 1'000'000);
  world_.control.ReleaseSweeps();
  const JobRecord outside =
      world_.WaitUntil("night", [](const JobRecord& job) { return job.counts.running == 0; });
  EXPECT_EQ(outside.state, JobState::kRunning);
  EXPECT_GT(outside.counts.pending, 0);
  const int64_t sweeps = world_.control.num_sweeps();
  world_.Submit("day", MakeRows(2), Spec(2));
  world_.WaitForEnd("day");
  EXPECT_LE(world_.control.num_sweeps(), sweeps + 4) << "only the other job's";
  world_.clock.Advance(int64_t{23} * 3600 * 1'000'000);
  world_.Submit("wakes the runner", MakeRows(1), Spec(2));
  EXPECT_EQ(world_.WaitForEnd("night").state, JobState::kSucceeded);
  ExpectCompletions("night", rows, Spec(60));
}

TEST_P(RunnerTest, AtExpiryWhatHasFinishedStaysAndTheRestExpires) {
  world_.expire_after_us = 5'000'000;
  StartHeldJob("job", MakeRows(30), Spec(60));
  world_.control.AllowSweeps(20);
  world_.control.WaitForHeldSweep();
  const int64_t finished = world_.Job("job").counts.succeeded;
  world_.clock.Advance(5'000'000);
  world_.control.ReleaseSweeps();
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kExpired);
  EXPECT_GE(job.counts.succeeded, finished);
  EXPECT_GT(job.counts.expired, 0);
  EXPECT_EQ(job.counts.succeeded + job.counts.expired, 30);
  for (const v1::Result& result : world_.Results("job")) {
    EXPECT_TRUE(result.has_completion() || ReasonOf(result) == reason::kJobExpired);
  }
}

TEST_P(RunnerTest, ADeletedJobLeavesTheEngineAndTheNextOneRuns) {
  StartHeldJob("deleted", MakeRows(40), Spec(60));
  world_.Write("deleted", [](JobStore& store) { return store.DeleteJob("deleted"); });
  world_.Submit("next", MakeRows(20), Spec(6));
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("next").state, JobState::kSucceeded);
  ExpectCompletions("next", MakeRows(20), Spec(6));
}

TEST_P(RunnerTest, AJobWithTheNameOfADeletedOneGetsItsOwnResults) {
  StartHeldJob("job", MakeRows(40), Spec(60));
  world_.Write("job", [](JobStore& store) { return store.DeleteJob("job"); });
  world_.Submit("job", MakeRows(20), Spec(6, /*seed=*/2));
  world_.control.ReleaseSweeps();
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.counts.succeeded, 20);
  ExpectCompletions("job", MakeRows(20), Spec(6, /*seed=*/2));
}

TEST_P(RunnerTest, AShortJobIsNotStuckBehindALongOne) {
  // Long enough that on a busy machine the preparer, whose threads are of low priority, gets its
  // turn in between.
  StartHeldJob("week", MakeRows(4000, ", \"ignore_eos\": true"), Spec(50));
  world_.control.AllowSweeps(10);
  world_.control.WaitForHeldSweep();
  world_.Submit("short", MakeRows(8), Spec(4));
  StepUntilEnd("short");
  EXPECT_LT(world_.Job("week").counts.succeeded, 3000);
  world_.Cancel("week");
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("week").state, JobState::kCancelled);
}

TEST_P(RunnerTest, AHigherPriorityTakesPlacesInTheBlockAndTheOthersGoOnAfterwards) {
  const std::vector<InputRow> rows = MakeRows(400);
  v1::JobSpec low = Spec(200);
  low.set_priority(v1::PRIORITY_LOW);
  StartHeldJob("low", rows, low);
  world_.control.AllowSweeps(3);
  world_.control.WaitForHeldSweep();
  v1::JobSpec high = Spec(6);
  high.set_priority(v1::PRIORITY_HIGH);
  world_.Submit("high", MakeRows(8), high);
  StepUntilEnd("high");
  EXPECT_LT(world_.Job("low").counts.succeeded, 300);
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("low").state, JobState::kSucceeded);
  ExpectCompletions("low", rows, low);
}

TEST_P(RunnerTest, ModelsTakeTurnsWhenTheSliceIsOver) {
  world_.options.model_slice_us = 1;
  StartHeldJob("week", MakeRows(100), Spec(30));
  world_.Submit("other model", MakeRows(4), Spec(4), "llama_tied");
  world_.clock.Advance(10);
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("other model").state, JobState::kSucceeded);
  EXPECT_EQ(world_.WaitForEnd("week").state, JobState::kSucceeded);
  ExpectCompletions("week", MakeRows(100), Spec(30));
  EXPECT_THAT(CreatedModels(), ElementsAre("llama", "llama_tied", "llama"));
}

TEST_P(RunnerTest, WhileHeldNothingRunsAndJobsEndAllTheSame) {
  const std::vector<InputRow> rows = MakeRows(8);
  StartHeldJob("job", rows, Spec(60));
  world_.Submit("cancelled", MakeRows(5), Spec(6));
  world_.runner().Hold(true);
  world_.control.ReleaseSweeps();
  world_.Cancel("cancelled");
  EXPECT_EQ(world_.WaitForEnd("cancelled").state, JobState::kCancelled);
  const JobRecord held =
      world_.WaitUntil("job", [](const JobRecord& job) { return job.counts.running == 0; });
  EXPECT_GT(held.counts.pending, 0);
  world_.runner().Hold(false);
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectCompletions("job", rows, Spec(60));
  EXPECT_THAT(CreatedModels(), ElementsAre("llama", "llama")) << "was unloaded";
}

TEST_P(RunnerTest, EveryRowGetsItsCompletionOnce) {
  const std::vector<InputRow> rows = MakeRows(100);
  world_.Start();
  world_.Submit("job", rows, Spec(20));
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.counts.succeeded, 100);
  ExpectCompletions("job", rows, Spec(20));
  EXPECT_EQ(world_.control.most_held(), 8);
  const v1::Completion completion = world_.Results("job")[3].completion();
  EXPECT_EQ(completion.attempt(), 1);
  EXPECT_EQ(completion.model(), "llama");
  EXPECT_EQ(completion.model_digest(), "fake");
  EXPECT_EQ(completion.numeric_mode(), "bf16/fake");
  EXPECT_EQ(completion.seed(), 1U);
}

TEST_P(RunnerTest, JobsThatWereThereBeforeItStartedRun) {
  const std::vector<InputRow> rows = MakeRows(3);
  world_.StartStore();
  world_.Submit("job", rows, Spec(4));
  world_.Start();
  world_.WaitForEnd("job");
  ExpectCompletions("job", rows, Spec(4));
}

TEST_P(RunnerTest, BadRowsHarmNoOthers) {
  std::vector<InputRow> rows = MakeRows(6);
  rows[0].line = "{\"prompt\": ";
  rows[1].line = TokenRow("long", std::vector<int32_t>(256, 20)).line;
  rows[2].line = TokenRow("foreign", {5000}).line;
  rows[3].line = R"({"id": "text", "prompt": "text without a tokenizer"})";
  rows[4].line = R"({"id": "stop", "prompt": [20], "stop": "x"})";
  world_.Start();
  world_.Submit("job", rows, Spec(4));
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.counts.failed, 5);
  const std::vector<v1::Result> results = world_.Results("job");
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(results[i].error().code(), static_cast<int>(absl::StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(ReasonOf(results[0]), "INPUT_MALFORMED");
  EXPECT_EQ(ReasonOf(results[1]), "PROMPT_TOO_LONG");
  EXPECT_THAT(results[1].error().message(), HasSubstr("256 tokens"));
  EXPECT_EQ(results[1].custom_id(), "long");
  EXPECT_EQ(ReasonOf(results[2]), "FIELD_OUT_OF_RANGE");
  EXPECT_EQ(ReasonOf(results[3]), "INPUT_MALFORMED");
  EXPECT_EQ(ReasonOf(results[4]), "FIELD_INVALID");
  EXPECT_EQ(results[5].completion().text(), Expected(rows[5], Spec(4)).text);
}

TEST_P(RunnerTest, ARowWhoseInputIsGoneFailsAlone) {
  const std::vector<InputRow> rows = MakeRows(3);
  world_.StartStore();
  world_.Submit("job", rows, Spec(4));
  world_.WriteFile("jobs/job", rows[0].line + "\n" + rows[1].line + "\n");
  world_.Start();
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 2);
  EXPECT_EQ(ReasonOf(world_.Results("job")[2]), "RECORD_CORRUPT");
}

// Of the rows that were taken in hand, and of the others.
TEST_P(RunnerTest, TheLongestRowsOfAJobAreClaimedFirst) {
  world_.options.max_ready_requests = 8;
  world_.options.engine.max_block_requests = 4;
  std::vector<InputRow> rows;
  for (size_t i = 0; i < 100; ++i) {
    rows.push_back(TokenRow(absl::StrCat("row-", i), std::vector<int32_t>(1 + i, 20)));
  }
  StartHeldJob("job", rows, Spec(8));
  world_.Settle();
  const auto claimed = static_cast<size_t>(world_.Job("job").counts.running);
  EXPECT_GE(claimed, 4U);
  // Those that ran come back first.
  const std::vector<ClaimedRow> again = world_.UnfinishedAfterCrash("job");
  ASSERT_EQ(again.size(), 100U);
  for (size_t i = 0; i < claimed; ++i) {
    EXPECT_EQ(again[i].index, static_cast<int64_t>(100 - claimed + i));
  }
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 100);
  ExpectCompletions("job", rows, Spec(8));
}

TEST_P(RunnerTest, WhateverTheWindowEveryRowRunsOnce) {
  const std::vector<InputRow> rows = MakeRows(100);
  for (const int64_t window : {1, 3, 70}) {
    world_.options.claim_window_rows = window;
    world_.options.max_ready_requests = 24;
    world_.Start();
    const std::string job_id = absl::StrCat("window-", window);
    world_.Submit(job_id, rows, Spec(6));
    EXPECT_EQ(world_.WaitForEnd(job_id).counts.succeeded, 100);
    ExpectCompletions(job_id, rows, Spec(6));
    EXPECT_EQ(NumTriedTwice(job_id), 0);
    world_.Stop();
  }
}

TEST_P(RunnerTest, InputThatCannotBeOpenedForAWhileCostsNothingWhenItIsChecked) {
  const std::vector<InputRow> rows = MakeRows(30);
  world_.StartStore();
  world_.Submit("job", rows, Spec(6));
  world_.BlockInput("job");
  world_.Submit("other", MakeRows(3), Spec(2));
  world_.Start();
  // It is checked behind the older one.
  EXPECT_EQ(world_.WaitForEnd("other").counts.succeeded, 3);
  EXPECT_EQ(world_.Job("job").state, JobState::kValidating);
  EXPECT_EQ(world_.Job("job").counts.pending, 30);
  world_.RestoreInput("job");
  AdvanceUntilEnd("job");
  EXPECT_EQ(world_.Job("job").counts.succeeded, 30);
  ExpectCompletions("job", rows, Spec(6));
}

TEST_P(RunnerTest, InputThatCannotBeOpenedForAWhileCostsNothingWhenItRuns) {
  const std::vector<InputRow> rows = MakeRows(30);
  v1::JobSpec spec = Spec(6);
  spec.mutable_not_before()->set_seconds(world_.clock.WallMicros() / 1'000'000 + 60);
  world_.Start();
  world_.Submit("job", rows, spec);
  world_.WaitUntil("job", [](const JobRecord& job) { return job.state == JobState::kQueued; });
  world_.BlockInput("job");
  world_.clock.Advance(60'000'000);
  // Rows of the older job are claimed before these.
  world_.Submit("other", MakeRows(3), Spec(2));
  EXPECT_EQ(world_.WaitForEnd("other").counts.succeeded, 3);
  const JobRecord waiting =
      world_.WaitUntil("job", [](const JobRecord& job) { return job.counts.running == 0; });
  EXPECT_EQ(waiting.state, JobState::kRunning) << "it was begun";
  EXPECT_EQ(waiting.counts.pending, 30);
  world_.RestoreInput("job");
  AdvanceUntilEnd("job");
  EXPECT_EQ(world_.Job("job").counts.succeeded, 30);
  ExpectCompletions("job", rows, Spec(6));
  EXPECT_EQ(NumTriedTwice("job"), 0) << "it is no failure of a sweep";
}

TEST_P(RunnerTest, InputThatStaysAwayFailsTheJobWithFileAndNumbers) {
  world_.StartStore();
  world_.Submit("job", MakeRows(5), Spec(6));
  world_.BlockInput("job");
  world_.Start();
  AdvanceUntilEnd("job");
  const JobRecord job = world_.Job("job");
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_EQ(job.counts.failed, 5);
  google::rpc::Status error;
  ASSERT_TRUE(error.ParseFromString(job.error));
  EXPECT_EQ(error.code(), static_cast<int>(absl::StatusCode::kDataLoss));
  EXPECT_THAT(error.message(), HasSubstr("/jobs/job: "));
  EXPECT_THAT(error.message(), HasSubstr("; tried 8 times in "));
  for (const v1::Result& result : world_.Results("job")) {
    EXPECT_EQ(ReasonOf(result), reason::kRecordCorrupt);
  }
}

// Its ids are in the input.
TEST_P(RunnerTest, ACancelledJobWaitsForInputThatCannotBeOpened) {
  world_.StartStore();
  world_.Submit("job", MakeRows(5), Spec(6));
  world_.BlockInput("job");
  world_.Cancel("job");
  world_.Submit("other", MakeRows(3), Spec(2));
  world_.Start();
  EXPECT_EQ(world_.WaitForEnd("other").counts.succeeded, 3);
  EXPECT_EQ(world_.Job("job").state, JobState::kCancelling);
  world_.RestoreInput("job");
  AdvanceUntilEnd("job");
  EXPECT_EQ(world_.Job("job").state, JobState::kCancelled);
  const std::vector<v1::Result> results = world_.Results("job");
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].custom_id(), absl::StrCat("row-", i));
  }
}

TEST_P(RunnerTest, OutputOfTheDefaultLengthEndsAtTheContext) {
  InputRow row = TokenRow("row-0", std::vector<int32_t>(254, 20));
  v1::JobSpec spec = Spec(100);
  spec.mutable_sampling()->clear_max_output_tokens();
  world_.Start();
  world_.Submit("job", {row}, spec);
  world_.WaitForEnd("job");
  EXPECT_LE(world_.Results("job")[0].completion().usage().output_tokens(), 2);
  ExpectCompletions("job", {row}, spec);
}

// A job waits for its time, no engine is made, and all that can be known of its rows is known.
TEST_P(RunnerTest, RowsAreCheckedWhileNothingRuns) {
  std::vector<InputRow> rows = MakeRows(5000);
  rows[4900] = TokenRow("row-4900", {5000});
  rows[17] = TokenRow("row-17", std::vector<int32_t>(256, 20));
  v1::JobSpec spec = Spec(4);
  spec.mutable_not_before()->set_seconds(int64_t{1} << 40);
  world_.StartStore();
  world_.Submit("job", rows, spec);
  EXPECT_EQ(world_.Job("job").state, JobState::kValidating);
  world_.Start();
  const JobRecord job = world_.WaitUntil(
      "job", [](const JobRecord& record) { return record.state == JobState::kQueued; });
  EXPECT_EQ(job.checked, 5000);
  EXPECT_EQ(job.checked_prompts, 4998);
  EXPECT_EQ(job.longest_prompt_tokens, 13);
  int64_t tokens = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    tokens += i == 17 || i == 4900 ? 0 : static_cast<int64_t>(rows[i].prompt.size());
  }
  EXPECT_EQ(job.checked_prompt_tokens, tokens);
  EXPECT_EQ(job.counts.failed, 2);
  EXPECT_EQ(job.counts.pending, 4998);
  EXPECT_EQ(ReasonOf(world_.Results("job")[17]), "PROMPT_TOO_LONG");
  EXPECT_THAT(world_.control.created(), IsEmpty());
}

TEST_P(RunnerTest, ACheckGoesOnWhereItWasAfterARestart) {
  world_.options.engine.max_block_requests = 256;
  v1::JobSpec spec = Spec(4);
  const std::vector<InputRow> rows = MakeRows(5000);
  world_.StartStore();
  world_.Submit("job", rows, spec);
  // As a daemon leaves it that was killed.
  world_.Write("job", [](JobStore& store) {
    return store.SaveChecked({.job_id = "job",
                              .end_index = 3000,
                              .prompts = 3000,
                              .prompt_tokens = 1,
                              .longest_prompt_tokens = 1});
  });
  world_.Start();
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.counts.succeeded, 5000);
  EXPECT_EQ(job.checked_prompts, 5000);
  int64_t tokens = 1;
  for (size_t i = 3000; i < rows.size(); ++i) {
    tokens += static_cast<int64_t>(rows[i].prompt.size());
  }
  EXPECT_EQ(job.checked_prompt_tokens, tokens);
  ExpectCompletions("job", rows, spec);
}

TEST_P(RunnerTest, AJobThatRejectsInvalidRowsFailsBeforeItRuns) {
  world_.options.engine.max_block_requests = 256;
  std::vector<InputRow> rows = MakeRows(3000);
  rows[2500] = TokenRow("row-2500", {5000});
  v1::JobSpec spec = Spec(4);
  spec.set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
  world_.Start();
  world_.Submit("bad", rows, spec);
  const JobRecord bad = world_.WaitForEnd("bad");
  EXPECT_EQ(bad.state, JobState::kFailed);
  EXPECT_EQ(bad.counts.failed, 3000);
  EXPECT_THAT(bad.error, HasSubstr("line 2501"));
  EXPECT_THAT(bad.error, HasSubstr("token id 5000"));
  EXPECT_THAT(world_.control.created(), IsEmpty()) << "no model was loaded for it";
  rows.resize(2500);
  world_.Submit("good", rows, spec);
  EXPECT_EQ(world_.WaitForEnd("good").state, JobState::kSucceeded);
  ExpectCompletions("good", rows, spec);
}

TEST_P(RunnerTest, AJobThatRejectsPromptsThatAreTooLongSaysSo) {
  std::vector<InputRow> rows = MakeRows(3);
  rows[1] = TokenRow("row-1", std::vector<int32_t>(300, 20));
  v1::JobSpec spec = Spec(4);
  spec.set_on_invalid_line(v1::ON_INVALID_LINE_REJECT_JOB);
  world_.Start();
  world_.Submit("job", rows, spec);
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kFailed);
  EXPECT_EQ(ReasonOf(world_.Results("job")[0]), reason::kPromptTooLong);
}

TEST_P(RunnerTest, JobsCanBePausedCancelledAndDeletedWhileTheyAreChecked) {
  world_.options.engine.max_block_requests = 256;
  world_.StartStore();
  for (const char* id : {"paused", "cancelled", "deleted", "other"}) {
    world_.Submit(id, MakeRows(3000), Spec(4));
  }
  world_.Write("paused", [](JobStore& store) { return store.PauseJob("paused"); });
  world_.Start();
  world_.Cancel("cancelled");
  world_.Write("deleted", [](JobStore& store) { return store.DeleteJob("deleted"); });
  EXPECT_EQ(world_.WaitForEnd("cancelled").state, JobState::kCancelled);
  EXPECT_EQ(world_.WaitForEnd("other").state, JobState::kSucceeded);
  EXPECT_EQ(world_.Job("paused").checked, 0);
  world_.Write("paused", [](JobStore& store) { return store.ResumeJob("paused"); });
  EXPECT_EQ(world_.WaitForEnd("paused").counts.succeeded, 3000);
}

TEST_P(RunnerTest, LogprobsComeWhenAsked) {
  v1::JobSpec spec = Spec(8);
  spec.mutable_sampling()->set_logprobs(true);
  spec.mutable_sampling()->set_top_logprobs(1);
  world_.Start();
  world_.Submit("job", MakeRows(2), spec);
  world_.WaitForEnd("job");
  const v1::Completion completion = world_.Results("job")[1].completion();
  ASSERT_EQ(completion.logprobs_size(), completion.token_ids_size());
  EXPECT_EQ(completion.logprobs(0).token(), completion.token_ids(0));
  EXPECT_THAT(completion.logprobs(0).top(), SizeIs(1));
}

TEST_P(RunnerTest, ARowOfSeveralChoicesIsOneResult) {
  const std::vector<InputRow> rows = MakeRows(20);
  world_.Start();
  world_.Submit("job", rows, ChoicesSpec(12, 5));
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.counts.succeeded, 20);
  ExpectChoices("job", rows, ChoicesSpec(12, 5));
}

TEST_P(RunnerTest, MoreChoicesThanTheBlockHoldsAndTooFewPagesStillEnd) {
  const std::vector<InputRow> rows = MakeRows(4);
  world_.fake_engine.page_positions = 4;
  world_.fake_engine.budget_pages = 40;
  world_.Start();
  world_.Submit("job", rows, ChoicesSpec(60, 13));
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 4);
  ExpectChoices("job", rows, ChoicesSpec(60, 13));
}

TEST_P(RunnerTest, ChoicesSurviveADrainAndThoseThatHadEndedAreNotRunAgain) {
  v1::JobSpec spec = ChoicesSpec(40, 3);
  spec.mutable_sampling()->set_logprobs(true);
  const std::vector<InputRow> rows = UnevenRows(2, spec);
  world_.control.HoldSweeps();
  world_.control.AllowSweeps(20);
  world_.Start();
  world_.Submit("job", rows, spec);
  DrainDuringSweep();
  world_.StartStore();
  int64_t ended = 0;
  for (const ClaimedRow& row : world_.UnfinishedAfterCrash("job")) {
    if (row.progress.empty()) {
      continue;
    }
    ASSERT_OK_AND_ASSIGN(const RequestProgress progress, ParseProgress(row.progress));
    ASSERT_EQ(progress.choices.size(), 3U);
    for (const ChoiceProgress& choice : progress.choices) {
      ended += choice.end.has_value() ? 1 : 0;
    }
  }
  EXPECT_GT(ended, 0);
  world_.Start();
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectChoices("job", rows, spec);
  for (const v1::Result& result : world_.Results("job")) {
    EXPECT_EQ(result.completion().attempt(), 1);
    EXPECT_EQ(result.completion().logprobs_size(), result.completion().token_ids_size());
  }
}

TEST_P(RunnerTest, AFailedSweepSendsRowsOfSeveralChoicesBackWhole) {
  const std::vector<InputRow> rows = MakeRows(7);
  world_.control.FailNextSweeps({absl::OkStatus(), absl::OkStatus(), absl::InternalError("lost")});
  world_.Start();
  world_.Submit("job", rows, ChoicesSpec(10, 3));
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectChoices("job", rows, ChoicesSpec(10, 3));
}

TEST_P(RunnerTest, CancelEndsRowsOfSeveralChoicesOnce) {
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("job", MakeRows(30), ChoicesSpec(30, 4));
  world_.control.WaitForHeldSweep();
  world_.Cancel("job");
  world_.control.ReleaseSweeps();
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_EQ(job.counts.succeeded + job.counts.cancelled, 30);
}

TEST_P(RunnerTest, ARowOfSeveralChoicesBeyondTheWholeBudgetFailsOnce) {
  std::vector<InputRow> rows = MakeRows(3);
  rows[1] = TokenRow("row-1", std::vector<int32_t>(200, 20));
  world_.fake_engine.budget_pages = 6;
  world_.Start();
  world_.Submit("job", rows, ChoicesSpec(4, 3));
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 2);
  EXPECT_EQ(ReasonOf(world_.Results("job")[1]), "PROMPT_TOO_LONG");
}

TEST_P(RunnerTest, LogprobsOfPromptsComeOnceWhateverTheNumberOfChoices) {
  std::vector<InputRow> rows = {
      TokenRow("a", {30, 31, 32}, R"(, "prompt_logprobs": 1, "max_tokens": 0)"),
      TokenRow("b", {40, 41},
               R"(, "echo": true, "logprobs": 1, "n": 3, "temperature": 1, "max_tokens": 200)")};
  world_.Start();
  world_.Submit("job", rows, Spec(8));
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 2);
  const std::vector<v1::Result> results = world_.Results("job");
  const v1::Completion& scored = results[0].completion();
  ASSERT_EQ(scored.prompt_logprobs_size(), 3);
  EXPECT_EQ(scored.prompt_logprobs(2).token(), 32);
  EXPECT_EQ(scored.prompt_logprobs(2).logprob(), -0.5F);
  EXPECT_EQ(scored.token_ids_size(), 0);
  EXPECT_EQ(scored.usage().output_tokens(), 0);
  EXPECT_FALSE(scored.has_echoed_prompt());
  const v1::Completion& echoed = results[1].completion();
  EXPECT_EQ(echoed.prompt_logprobs_size(), 2);
  EXPECT_EQ(echoed.further_choices_size(), 2);
  EXPECT_TRUE(echoed.has_echoed_prompt());
  int64_t reported = echoed.logprobs_size();
  for (const v1::Choice& choice : echoed.further_choices()) {
    reported += choice.logprobs_size();
  }
  EXPECT_EQ(reported, echoed.usage().output_tokens());
}

TEST_P(RunnerTest, ChoicesAreScoredInOneRow) {
  const char* options = R"(, "choices": [[128], [32, 32], [64], [32, 32, 64]])";
  std::vector<InputRow> rows = {TokenRow("a", {30, 31, 32}, options), TokenRow("b", {30, 31})};
  v1::JobSpec spec = Spec(8);
  spec.mutable_sampling()->set_min_output_tokens(2);  // of rows that generate
  world_.Start();
  world_.Submit("job", rows, spec);
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 2);
  const std::vector<v1::Result> results = world_.Results("job");
  const v1::Completion& scored = results[0].completion();
  ASSERT_EQ(scored.choice_scores_size(), 4);
  // The fake model gives a token the log-probability -token / 64.
  EXPECT_EQ(scored.choice_scores(0).logprob(), -2.0);
  EXPECT_EQ(scored.choice_scores(1).logprob(), -1.0);
  EXPECT_EQ(scored.choice_scores(3).logprob(), -2.0);
  EXPECT_EQ(scored.choice_scores(3).token_ids_size(), 3);
  EXPECT_EQ(scored.choice_scores(3).logprobs_size(), 0);
  EXPECT_NEAR(scored.choice_scores(2).probability(), 0.5 / (1 + std::exp(-1.0)), 1e-12);
  EXPECT_EQ(scored.best_choice(), 1);  // the first of equals
  EXPECT_EQ(scored.usage().prompt_tokens(), 3 + 1 + 2 + 1 + 3);
  EXPECT_EQ(scored.usage().output_tokens(), 0);
  EXPECT_EQ(scored.usage().cached_tokens(), 2);
  EXPECT_GT(results[1].completion().token_ids_size(), 0);
}

TEST_P(RunnerTest, CancelEndsEveryRowAndKeepsFinishedWork) {
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("job", MakeRows(1500), Spec(1));
  world_.control.WaitForHeldSweep();
  world_.control.AllowSweeps(1);
  world_.control.WaitForHeldSweep();
  world_.Cancel("job");
  world_.control.ReleaseSweeps();
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kCancelled);
  EXPECT_GE(job.counts.succeeded, 8);
  EXPECT_GT(job.counts.cancelled, 1000);
  EXPECT_EQ(job.counts.succeeded + job.counts.cancelled, 1500);
  for (const v1::Result& result : world_.Results("job")) {
    if (result.has_error()) {
      EXPECT_EQ(result.error().code(), static_cast<int>(absl::StatusCode::kCancelled));
      EXPECT_EQ(result.custom_id(), absl::StrCat("row-", result.index()));
    }
  }
}

TEST_P(RunnerTest, CancelDoesNotDisturbOtherJobs) {
  const std::vector<InputRow> rows = MakeRows(50);
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("unwanted", MakeRows(50), Spec(30));
  world_.Submit("wanted", rows, Spec(30));
  world_.control.WaitForHeldSweep();
  world_.Cancel("unwanted");
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("unwanted").state, JobState::kCancelled);
  EXPECT_EQ(world_.WaitForEnd("wanted").state, JobState::kSucceeded);
  ExpectCompletions("wanted", rows, Spec(30));
}

TEST_P(RunnerTest, DrainKeepsProgressAndARestartGivesTheSameTexts) {
  const std::vector<InputRow> rows = MakeRows(30);
  v1::JobSpec spec = Spec(40);
  spec.mutable_sampling()->set_logprobs(true);
  world_.control.HoldSweeps();
  world_.control.AllowSweeps(5);
  world_.Start();
  world_.Submit("job", rows, spec);
  DrainDuringSweep();
  const int64_t sweeps_before = world_.control.num_sweeps();
  world_.StartStore();
  EXPECT_EQ(world_.Job("job").counts.running, 0);
  const std::vector<ClaimedRow> rest = world_.UnfinishedAfterCrash("job");
  ASSERT_GE(rest.size(), 22U);
  const auto with_progress = std::count_if(rest.begin(), rest.end(), [](const ClaimedRow& row) {
    const auto progress = ParseProgress(row.progress);
    return progress.ok() && !progress->choices[0].generated.empty();
  });
  EXPECT_GE(with_progress, 1);
  world_.Start();
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectCompletions("job", rows, spec);
  EXPECT_GE(sweeps_before, 6);
  for (const v1::Result& result : world_.Results("job")) {
    EXPECT_EQ(result.completion().attempt(), 1);
    EXPECT_EQ(result.completion().logprobs_size(), result.completion().token_ids_size());
  }
}

TEST_P(RunnerTest, ProgressBecomesDurableAtTheFirstSweepEdgeAfterTheInterval) {
  world_.options.progress_interval_us = 1000;
  world_.control.HoldSweeps();
  world_.control.AllowSweeps(3);
  world_.Start();
  world_.Submit("job", {TokenRow("row-0", {30, 31})}, Spec(200));
  world_.control.WaitForHeldSweep();
  world_.Settle();
  EXPECT_EQ(world_.UnfinishedAfterCrash("job")[0].progress, "");
  world_.clock.Advance(1000);
  world_.control.AllowSweeps(1);
  world_.control.WaitForHeldSweep();
  world_.Settle();
  const std::string progress = world_.UnfinishedAfterCrash("job")[0].progress;
  EXPECT_EQ(ParseProgress(progress)->choices[0].generated.size(), 4U);
}

TEST_P(RunnerTest, AFailedSweepSendsItsRowsBackOnce) {
  const std::vector<InputRow> rows = MakeRows(20);
  world_.control.FailNextSweeps({absl::InternalError("device lost")});
  world_.Start();
  world_.Submit("job", rows, Spec(10));
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectCompletions("job", rows, Spec(10));
  EXPECT_THAT(world_.control.created(), SizeIs(2));
  // The rows of the block that failed, and no others.
  EXPECT_EQ(NumTriedTwice("job"), 8);
}

TEST_P(RunnerTest, AnEngineThatEndedWhileItHeldNothingIsMadeAnewAndCountsNoAttempt) {
  const std::vector<InputRow> rows = MakeRows(20);
  world_.Start();
  world_.Submit("first", rows, Spec(10));
  world_.WaitForEnd("first");
  world_.control.EndEngine(absl::UnavailableError("ended by signal 9"));
  world_.Submit("second", rows, Spec(10));
  EXPECT_EQ(world_.WaitForEnd("second").state, JobState::kSucceeded);
  ExpectCompletions("second", rows, Spec(10));
  EXPECT_THAT(world_.control.created(), SizeIs(2));
  EXPECT_EQ(NumTriedTwice("second"), 0);
}

// Bytes that are wrong twice are wrong for every job; only what was written anew is tried again.
TEST_P(RunnerTest, AModelOfWrongWeightsIsServedNoMore) {
  world_.control.FailNextSweeps({absl::DataLossError("checksum of layers.3.up.weight"),
                                 absl::DataLossError("checksum of layers.3.up.weight")});
  world_.Start();
  world_.Submit("job", MakeRows(40), Spec(10));
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kFailed);
  world_.Submit("next", MakeRows(3), Spec(10));
  const JobRecord next = world_.WaitForEnd("next");
  EXPECT_EQ(next.state, JobState::kFailed);
  EXPECT_THAT(next.error, HasSubstr("layers.3.up.weight"));
  world_.Submit("other", MakeRows(3), Spec(10), "llama_tied");
  EXPECT_EQ(world_.WaitForEnd("other").state, JobState::kSucceeded);
}

TEST_P(RunnerTest, OneFailedReadSendsTheRowsBackOnce) {
  const std::vector<InputRow> rows = MakeRows(20);
  world_.control.FailNextSweeps(
      {absl::FailedPreconditionError("at offset 4096: Input/output error")});
  world_.Start();
  world_.Submit("job", rows, Spec(10));
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectCompletions("job", rows, Spec(10));
  EXPECT_EQ(NumTriedTwice("job"), 8);
}

// One failed read may be the disk's bad moment; at the same again the jobs fail, until another one
// asks.
TEST_P(RunnerTest, WeightsThatCannotBeReadTwiceFailTheJob) {
  world_.control.FailNextSweeps({absl::FailedPreconditionError("read of layers.3.up.weight"),
                                 absl::FailedPreconditionError("read of layers.3.up.weight")});
  world_.Start();
  world_.Submit("job", MakeRows(40), Spec(10));
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_THAT(job.error, HasSubstr("layers.3.up.weight"));
  EXPECT_THAT(job.error, HasSubstr("MODEL_UNAVAILABLE"));
  EXPECT_EQ(job.counts.succeeded, 0);
  world_.Submit("next", MakeRows(3), Spec(10));
  EXPECT_EQ(world_.WaitForEnd("next").state, JobState::kSucceeded);
}

TEST_P(RunnerTest, APoisonousRowFailsAloneAndTheDaemonLives) {
  std::vector<InputRow> rows = MakeRows(40);
  rows[11] = TokenRow("row-11", {kPoisonToken, 20});
  world_.options.engine.max_block_requests = 32;
  world_.Start();
  world_.Submit("job", rows, Spec(10));
  const JobRecord job = world_.WaitForEnd("job");
  EXPECT_EQ(job.state, JobState::kSucceeded);
  EXPECT_EQ(job.counts.failed, 1);
  const std::vector<v1::Result> results = world_.Results("job");
  EXPECT_EQ(ReasonOf(results[11]), "ATTEMPTS_EXHAUSTED");
  EXPECT_THAT(results[11].error().message(), HasSubstr("poisonous"));
}

TEST_P(RunnerTest, AModelThatCannotBeLoadedFailsItsJobWithAResultForEachRow) {
  const std::vector<InputRow> rows = MakeRows(5);
  world_.control.FailNextCreates({absl::ResourceExhaustedError("budget 1, needed 2")});
  world_.StartStore();
  world_.Submit("bad", MakeRows(1200), Spec(4), "llama_tied");
  world_.Submit("good", rows, Spec(4));
  world_.Start();
  const JobRecord job = world_.WaitForEnd("bad");
  EXPECT_EQ(job.state, JobState::kFailed);
  EXPECT_EQ(job.counts.failed, 1200);
  google::rpc::Status error;
  ASSERT_TRUE(error.ParseFromString(job.error));
  EXPECT_THAT(error.message(), HasSubstr("needed 2"));
  const std::vector<v1::Result> results = world_.Results("bad");
  EXPECT_EQ(ReasonOf(results[0]), "MODEL_UNAVAILABLE");
  EXPECT_EQ(results[1199].custom_id(), "row-1199");
  EXPECT_EQ(world_.WaitForEnd("good").state, JobState::kSucceeded);
  ExpectCompletions("good", rows, Spec(4));
}

// The disk has no room for keys and values that memory does not hold: nothing is lost, the job goes
// on when there is some.
TEST_P(RunnerTest, AModelThatFindsTheDiskFullIsLoadedAgainLater) {
  const std::vector<InputRow> rows = MakeRows(5);
  world_.control.FailNextCreates(
      {absl::UnavailableError("disk full"), absl::UnavailableError("disk full")});
  world_.StartStore();
  world_.Submit("job", rows, Spec(4));
  world_.Start();
  EXPECT_EQ(world_.WaitForEnd("job").state, JobState::kSucceeded);
  ExpectCompletions("job", rows, Spec(4));
  EXPECT_EQ(world_.control.created().size(), 1U);
}

// A disk that is not mounted when the daemon starts: the model was there when the job was accepted.
TEST_P(RunnerTest, AJobWhosePackIsAwayWaitsForItAndHoldsNoOtherUp) {
  namespace fs = std::filesystem;
  const TemporaryFolder disk;
  const std::string pack = disk.path() + "/mounted";
  world_.models.push_back(pack);
  const std::vector<InputRow> rows = MakeRows(5);
  world_.StartStore();
  world_.Submit("strict", rows, RejectingSpec(4), "mounted");
  world_.Submit("waits", rows, Spec(4), "mounted");
  world_.Submit("unknown", rows, Spec(4), "of no folder");
  world_.Submit("other", rows, Spec(4));
  world_.Start();
  EXPECT_EQ(world_.WaitForEnd("other").state, JobState::kSucceeded);
  EXPECT_EQ(world_.Job("waits").state, JobState::kValidating);
  EXPECT_EQ(world_.Job("waits").counts.pending, 5);
  EXPECT_THAT(
      world_.runner().status().model_waits,
      ElementsAre(Pair("mounted", HasSubstr(pack + "/manifest.json")),
                  Pair("of no folder", HasSubstr("there are: llama, llama_tied, mounted"))));

  // Copied back piece by piece: not whole for a while.
  fs::create_directory(pack);
  fs::copy_file(TinyPack("llama") + "/manifest.json", pack + "/manifest.json");
  std::ofstream(pack + "/weights.extent") << "a part";
  AdvanceUntil([&] {
    return world_.runner().status().model_waits["mounted"].find("has 6 bytes") != std::string::npos;
  });
  fs::copy_file(TinyPack("llama") + "/weights.extent", pack + "/weights.extent",
                fs::copy_options::overwrite_existing);
  AdvanceUntilEnd("waits");
  AdvanceUntilEnd("strict");
  EXPECT_EQ(world_.Job("strict").counts.succeeded, 5);
  ExpectCompletions("waits", rows, Spec(4));
  world_.Cancel("unknown");
  EXPECT_EQ(world_.WaitForEnd("unknown").counts.cancelled, 5) << "it can be ended while it waits";
  AdvanceUntil([&] { return world_.runner().status().model_waits.empty(); });
}

TEST_P(RunnerTest, APackThatVanishesIsWaitedForWhenItsModelMustBeLoadedAgain) {
  const TemporaryFolder disk;
  const std::string pack = disk.path() + "/pack";
  std::filesystem::copy(TinyPack("llama"), pack, std::filesystem::copy_options::recursive);
  world_.models.push_back(pack);
  world_.Start();
  const std::vector<InputRow> rows = MakeRows(5);
  world_.Submit("before", rows, Spec(4), "pack");
  EXPECT_EQ(world_.WaitForEnd("before").state, JobState::kSucceeded);
  std::filesystem::rename(pack, pack + ".away");
  world_.Submit("switch", rows, Spec(4), "llama_tied");
  EXPECT_EQ(world_.WaitForEnd("switch").state, JobState::kSucceeded);
  world_.Submit("job", rows, Spec(4), "pack");
  AdvanceUntil([&] { return world_.runner().status().model_waits.count("pack") != 0; });
  EXPECT_EQ(world_.Job("job").counts.pending, 5);
  std::filesystem::rename(pack + ".away", pack);
  AdvanceUntilEnd("job");
  EXPECT_EQ(world_.Job("job").state, JobState::kSucceeded);
  ExpectCompletions("job", rows, Spec(4));
}

TEST_P(RunnerTest, JobsOfTheLoadedModelRunTogetherBeforeASwitch) {
  const std::vector<InputRow> rows = MakeRows(12);
  world_.StartStore();
  world_.Submit("a", rows, Spec(6));
  world_.Submit("b", rows, Spec(6), "llama_tied");
  world_.Submit("c", rows, Spec(6));
  world_.Start();
  for (const char* id : {"a", "b", "c"}) {
    EXPECT_EQ(world_.WaitForEnd(id).state, JobState::kSucceeded);
    ExpectCompletions(id, rows, Spec(6));
  }
  EXPECT_THAT(CreatedModels(), ElementsAre("llama", "llama_tied"));
}

TEST_P(RunnerTest, AJobOfHigherPriorityTakesOverAtASweepEdge) {
  const std::vector<InputRow> rows = MakeRows(12);
  v1::JobSpec urgent = Spec(6);
  urgent.set_priority(v1::PRIORITY_HIGH);
  world_.control.HoldSweeps();
  world_.control.AllowSweeps(2);
  world_.Start();
  world_.Submit("long", rows, Spec(60));
  world_.control.WaitForHeldSweep();
  world_.Submit("urgent", rows, urgent, "llama_tied");
  world_.control.ReleaseSweeps();
  world_.WaitForEnd("urgent");
  world_.WaitForEnd("long");
  ExpectCompletions("long", rows, Spec(60));
  ExpectCompletions("urgent", rows, urgent);
  EXPECT_THAT(CreatedModels(), ElementsAre("llama", "llama_tied", "llama"));
  EXPECT_EQ(world_.Results("long")[0].completion().attempt(), 1);
}

TEST_P(RunnerTest, AnotherComputeTypeIsAnotherEngine) {
  v1::JobSpec f32 = Spec(4);
  f32.set_compute_type(v1::COMPUTE_TYPE_CHOICE_F32);
  world_.StartStore();
  world_.Submit("a", MakeRows(2), Spec(4));
  world_.Submit("b", MakeRows(2), f32);
  world_.Start();
  world_.WaitForEnd("b");
  world_.WaitForEnd("a");
  EXPECT_THAT(world_.control.created(), SizeIs(2));
  EXPECT_EQ(world_.Results("b")[0].completion().numeric_mode(), "f32/fake");
}

TEST_P(RunnerTest, PackedKeysAndValuesAreAnotherEngine) {
  v1::JobSpec packed = Spec(4);
  packed.mutable_compression()->set_kv(v1::COMPRESSION_CHOICE_INT4);
  world_.StartStore();
  world_.Submit("a", MakeRows(2), Spec(4));
  world_.Submit("b", MakeRows(2), packed);
  world_.Start();
  world_.WaitForEnd("b");
  world_.WaitForEnd("a");
  ASSERT_THAT(world_.control.created(), SizeIs(2));
  EXPECT_EQ(world_.control.created()[1].kv_type, DType::kU4G64);
  EXPECT_EQ(world_.Results("a")[0].completion().numeric_mode(), "bf16/fake");
  EXPECT_EQ(world_.Results("b")[0].completion().numeric_mode(), "bf16/kv int4/fake");
}

TEST_P(RunnerTest, TakesABoundedNumberOfRowsInHand) {
  world_.options.max_ready_requests = 16;
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("job", MakeRows(400), Spec(30));
  int64_t most_running = 0;
  for (int i = 0; i < 40; ++i) {
    world_.control.WaitForHeldSweep();
    world_.Settle();
    most_running = std::max(most_running, world_.Job("job").counts.running);
    world_.control.AllowSweeps(1);
  }
  // 8 in the block, 16 ready or on their way, 8 that ended at one sweep edge and are being
  // published.
  EXPECT_LE(most_running, 32);
  EXPECT_GE(most_running, 9);
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 400);
}

TEST_P(RunnerTest, EvictedRequestsJoinAgain) {
  const std::vector<InputRow> rows = MakeRows(40);
  world_.fake_engine.page_positions = 4;
  world_.fake_engine.budget_pages = 40;
  world_.Start();
  world_.Submit("job", rows, Spec(100));
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 40);
  ExpectCompletions("job", rows, Spec(100));
}

TEST_P(RunnerTest, ARequestBeyondTheWholeBudgetFailsAlone) {
  std::vector<InputRow> rows = MakeRows(4);
  rows[1] = TokenRow("row-1", std::vector<int32_t>(200, 20));
  world_.fake_engine.budget_pages = 6;  // of 32 positions
  world_.Start();
  world_.Submit("job", rows, Spec(4));
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 3);
  EXPECT_EQ(ReasonOf(world_.Results("job")[1]), "PROMPT_TOO_LONG");
}

TEST_P(RunnerTest, StatusTellsWhatIsLoaded) {
  world_.control.HoldSweeps();
  world_.control.AllowSweeps(1);
  world_.Start();
  EXPECT_EQ(world_.runner().status().loaded_model, "");
  world_.Submit("job", MakeRows(4), Spec(50));
  world_.control.WaitForHeldSweep();
  EXPECT_EQ(world_.runner().status().loaded_model, "llama");
  EXPECT_EQ(world_.runner().status().device, "fake device");
  world_.control.ReleaseSweeps();
  world_.WaitForEnd("job");
}

// Of a record; CHECKs that it parses.
v1::Report ReportOf(const JobRecord& job) {
  v1::Report report;
  CHECK(report.ParseFromString(job.report));
  return report;
}

TEST_P(RunnerTest, StatusAndTimelineTellOfTheSweepsSinceTheModelWasLoaded) {
  world_.Start();
  EXPECT_EQ(world_.runner().status().bottleneck, "");
  EXPECT_TRUE(world_.runner().timeline().empty());
  world_.Submit("job", MakeRows(20), Spec(10));
  world_.WaitForEnd("job");
  const int64_t sweeps = world_.control.num_sweeps();
  EXPECT_EQ(world_.runner().status().bottleneck, "read 93 %");
  EXPECT_EQ(world_.runner().status().times.sweeps, sweeps);
  EXPECT_THAT(world_.runner().timeline(), SizeIs(2 * sweeps));
  world_.Submit("other", MakeRows(1), Spec(1), "llama_tied");
  world_.WaitForEnd("other");
  EXPECT_EQ(world_.runner().status().times.sweeps, world_.control.num_sweeps() - sweeps);
  EXPECT_THAT(world_.runner().timeline(), SizeIs(2 * (world_.control.num_sweeps() - sweeps)));
}

TEST_P(RunnerTest, AReportIsThereWithTheEndOfTheJobAndCountsItsSweepsOnly) {
  world_.Start();
  world_.Submit("first", MakeRows(20), Spec(10));
  const v1::Report first = ReportOf(world_.WaitForEnd("first"));
  EXPECT_EQ(first.sweeps(), world_.control.num_sweeps());
  EXPECT_EQ(first.wall_us(), first.sweeps() * kFakeSweepUs);
  EXPECT_EQ(first.bottleneck(), "read 93 %");
  ASSERT_THAT(first.lanes(), SizeIs(2));
  EXPECT_EQ(first.lanes(0).name(), "read");
  EXPECT_EQ(first.lanes(0).bytes(), first.sweeps() * kFakeReadBytes);
  EXPECT_DOUBLE_EQ(first.lanes(0).waited_share(), 0.52);
  world_.Submit("second", MakeRows(3), Spec(4));
  const v1::Report second = ReportOf(world_.WaitForEnd("second"));
  EXPECT_EQ(second.sweeps(), world_.control.num_sweeps() - first.sweeps());
  EXPECT_EQ(ReportOf(world_.Job("first")).sweeps(), first.sweeps());
}

TEST_P(RunnerTest, AReportGoesOnAfterARestart) {
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("job", MakeRows(8), Spec(60));
  world_.control.AllowSweeps(5);
  DrainDuringSweep();
  const int64_t before = world_.control.num_sweeps();
  world_.StartStore();
  EXPECT_EQ(ReportOf(world_.Job("job")).sweeps(), before);
  world_.Start();
  const v1::Report whole = ReportOf(world_.WaitForEnd("job"));
  EXPECT_EQ(whole.sweeps(), world_.control.num_sweeps());
  EXPECT_GT(world_.control.num_sweeps(), before);
}

TEST_P(RunnerTest, AJobThatNeverRanHasNoReport) {
  world_.control.FailNextCreates({absl::FailedPreconditionError("gone")});
  world_.Start();
  world_.Submit("job", MakeRows(2), Spec(4));
  EXPECT_EQ(world_.WaitForEnd("job").report, "");
}

TEST_P(RunnerTest, APlannedJobReportsWhatWasPredictedAlsoAfterARestart) {
  world_.options.hardware = PlainBox();
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("job", MakeRows(8), Spec(60));
  world_.control.AllowSweeps(5);
  DrainDuringSweep();
  const int64_t before = world_.control.num_sweeps();
  world_.StartStore();
  EXPECT_EQ(ReportOf(world_.Job("job")).prediction().sweeps(), before);
  world_.Start();
  const v1::Report whole = ReportOf(world_.WaitForEnd("job"));
  const v1::PredictionReport& prediction = whole.prediction();
  EXPECT_EQ(prediction.sweeps(), world_.control.num_sweeps());
  EXPECT_EQ(prediction.wall_us(), whole.wall_us());
  EXPECT_GT(prediction.predicted_wall_us(), 0);
  EXPECT_GT(prediction.predicted_tokens_per_s(), 0.0);
  EXPECT_GT(prediction.planned_requests(), 0);
  EXPECT_FALSE(prediction.constraint().empty());
  for (const v1::LaneReport& lane : whole.lanes()) {
    EXPECT_EQ(lane.compared_us(), lane.busy_us());
    EXPECT_GT(lane.predicted_us(), 0) << lane.name();
  }
  ExpectCompletions("job", MakeRows(8), Spec(60));
}

TEST_P(RunnerTest, WithoutAProfileNothingIsPredicted) {
  world_.Start();
  world_.Submit("job", MakeRows(3), Spec(4));
  EXPECT_FALSE(ReportOf(world_.WaitForEnd("job")).has_prediction());
  EXPECT_THAT(world_.runner().status().policy->reason, HasSubstr("nightshift calibrate"));
}

TEST_P(RunnerTest, AGrowingQueueChangesThePlanAndNoText) {
  world_.options.hardware = PlainBox();
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("few", MakeRows(4), Spec(60));
  world_.control.WaitForHeldSweep();
  world_.Submit("many", MakeRows(300), Spec(40, 2));
  world_.Settle();
  world_.control.ReleaseSweeps();
  world_.WaitForEnd("few");
  world_.WaitForEnd("many");
  EXPECT_THAT(world_.control.planned_blocks(), Not(IsEmpty()));
  EXPECT_GE(world_.runner().status().plan_counts.replans, 1);
  ExpectCompletions("few", MakeRows(4), Spec(60));
  ExpectCompletions("many", MakeRows(300), Spec(40, 2));
}

TEST_P(RunnerTest, APlanThatFindsNoRoomAtTheLoadIsMadeOnceForLess) {
  world_.options.hardware = PlainBox();
  world_.options.engine.memory_budget_bytes = 64 << 20;
  world_.options.available_memory = [] { return int64_t{20} << 20; };
  world_.control.FailNextCreates({absl::ResourceExhaustedError("no memory")});
  world_.Start();
  world_.Submit("job", MakeRows(20), Spec(5));
  EXPECT_EQ(world_.WaitForEnd("job").counts.succeeded, 20);
  const std::vector<FakeEngineControl::Created> created = world_.control.created();
  ASSERT_THAT(created, SizeIs(1));
  EXPECT_LE(created[0].memory_budget_bytes, 20 << 20);
  EXPECT_EQ(world_.runner().status().plan_counts.failed_allocations, 1);
}

TEST_P(RunnerTest, AnEngineThatAChangeOfPlanHasLostIsMadeAnewAndNoRowIsBlamed) {
  world_.options.hardware = PlainBox();
  world_.control.HoldSweeps();
  world_.control.FailNextPlans({absl::UnavailableError("no memory")});
  v1::JobSpec spec = Spec(60);
  spec.set_max_attempts(1);
  world_.Start();
  world_.Submit("few", MakeRows(4), spec);
  world_.control.WaitForHeldSweep();
  world_.Submit("many", MakeRows(300), spec);
  world_.Settle();
  world_.control.ReleaseSweeps();
  EXPECT_EQ(world_.WaitForEnd("few").counts.succeeded, 4);
  EXPECT_EQ(world_.WaitForEnd("many").counts.succeeded, 300);
  EXPECT_THAT(world_.control.created(), SizeIs(2));
  ExpectCompletions("few", MakeRows(4), spec);
}

TEST_P(RunnerTest, EstimatesWhenJobsEndFromThePlanAndOfThoseThatWaitToo) {
  world_.options.hardware = PlainBox();
  world_.control.HoldSweeps();
  world_.Start();
  world_.Submit("first", MakeRows(40), Spec(60));
  world_.control.WaitForHeldSweep();
  const RunnerStatus status = world_.runner().status();
  ASSERT_EQ(status.times_left->count("first"), 1U) << "before any sweep has ended";
  const TimeLeft left = status.times_left->at("first");
  EXPECT_GT(left.least_seconds, 0.0);
  EXPECT_LT(left.least_seconds, left.seconds);
  EXPECT_LT(left.seconds, left.most_seconds);
  world_.Submit("second", MakeRows(40), Spec(60));
  world_.Settle();
  world_.clock.Advance(1'000'000);
  world_.control.AllowHeldSweep();
  world_.control.WaitForHeldSweep();
  world_.clock.Advance(1'000'000);
  world_.control.AllowHeldSweep();
  world_.control.WaitForHeldSweep();
  EXPECT_EQ(world_.runner().status().times_left->count("second"), 1U);
  world_.control.ReleaseSweeps();
  world_.WaitForEnd("first");
  world_.WaitForEnd("second");
}

TEST_P(RunnerTest, EstimatesJobsOfAnotherModelBehindThoseOfTheLoadedOneIfItWasEverLoaded) {
  v1::JobSpec f32 = Spec(60);
  f32.set_compute_type(v1::COMPUTE_TYPE_CHOICE_F32);
  world_.options.hardware = PlainBox();
  world_.Start();
  world_.Submit("before", MakeRows(4), Spec(4), "llama_tied");
  world_.WaitForEnd("before");
  world_.control.HoldSweeps();
  world_.Submit("here", MakeRows(40), Spec(60));
  world_.control.WaitForHeldSweep();
  world_.Submit("there", MakeRows(40), Spec(60), "llama_tied");
  world_.Submit("never", MakeRows(40), f32);
  world_.Settle();
  for (int sweep = 0; sweep < 2; ++sweep) {
    world_.clock.Advance(1'000'000);
    world_.control.AllowHeldSweep();
    world_.control.WaitForHeldSweep();
  }
  const auto times = world_.runner().status().times_left;
  ASSERT_EQ(times->count("here"), 1U);
  ASSERT_EQ(times->count("there"), 1U);
  EXPECT_GT(times->at("there").seconds, times->at("here").seconds);
  EXPECT_EQ(times->count("never"), 0U);
  world_.control.ReleaseSweeps();
  for (const char* id : {"here", "there", "never"}) {
    world_.WaitForEnd(id);
  }
}

TEST_P(RunnerTest, DrainIsIdempotentAndNeedsNoStart) {
  world_.Start();
  world_.runner().Drain();
  world_.runner().Drain();
}

INSTANTIATE_TEST_SUITE_P(Stores, RunnerTest,
                         ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite),
                         [](const auto& kind) {
                           return kind.param == StoreKind::kMemory ? "memory" : "sqlite";
                         });

TEST(ChooseJobToCheckTest, GoesByWhoRunsOutThenByPriority) {
  const auto make = [](const std::string& id, int32_t priority, int64_t checked, int64_t done) {
    JobRecord job;
    job.id = id;
    job.priority = priority;
    job.state = done > 0 ? JobState::kRunning : JobState::kValidating;
    job.checked = checked;
    job.counts.total = 1'000'000;
    job.counts.succeeded = done;
    job.counts.pending = job.counts.total - done;
    return job;
  };
  std::vector<JobRecord> jobs = {make("high", 3, 500'000, 0),           make("far", 2, 900'000, 0),
                                 make("soon out", 2, 901'000, 900'500), make("new", 2, 0, 0),
                                 make("whole", 3, 1'000'000, 0),        make("paused", 3, 0, 0)};
  jobs.back().state = JobState::kPaused;
  std::string order;
  for (auto job = ChooseJobToCheck(jobs); job != jobs.end(); job = ChooseJobToCheck(jobs)) {
    order += job->id + ", ";
    jobs.erase(job);
  }
  EXPECT_EQ(order, "new, soon out, high, far, ");
}

class ClaimWindowTest : public ::testing::Test {
 protected:
  // Shapes of rows, of which `known` are kept.
  void AddJob(const std::vector<PromptShape>& shapes, const std::set<int64_t>& known) {
    std::vector<InputRow> rows(shapes.size(), TokenRow("row", {20, 21, 22}));
    world_.StartStore();
    world_.Submit("job", rows);
    world_.Write("job", [&](JobStore& store) {
      return store.SaveChecked({.job_id = "job", .end_index = static_cast<int64_t>(shapes.size())});
    });
    search_.job =
        MakeJobContext(world_.Job("job"), world_.options.state_directory, ComputeType::kBF16);
    search_.text_digest = 7;
    search_.end_index = static_cast<int64_t>(shapes.size());
    search_.limit = 1000;
    for (const int64_t index : known) {
      kept_.KeepShape({.job_uid = search_.job->uid,
                       .job_rows = search_.job->num_rows,
                       .index = index,
                       .text_digest = 7},
                      shapes[static_cast<size_t>(index)]);
    }
  }
  FoundRows Find() {
    auto found = FindRows(search_, world_.actor().store(), kept_);
    CHECK(found.ok());
    return *std::move(found);
  }

  RunnerWorld world_{StoreKind::kMemory};
  KeptPrompts kept_{
      {.directory = world_.options.state_directory + "/prompts", .max_bytes = 1 << 20}};
  RowSearch search_;
};

TEST_F(ClaimWindowTest, OrdersByPromptAndOutputAndByBytesWhereNothingIsKnown) {
  AddJob({{.prompt_tokens = 10, .max_output_tokens = 300},
          {.prompt_tokens = 200, .max_output_tokens = 400},
          {},
          {.prompt_tokens = 1, .max_output_tokens = 1},
          {.prompt_tokens = 500, .max_output_tokens = 1}},
         {0, 1, 3, 4});
  // Of row 2 only its bytes are known: about 10 tokens, and up to 256 of output.
  EXPECT_THAT(Find().indices, ElementsAre(1, 4, 0, 2, 3));
  search_.lengths.Begin("job", 1000, 1000, 1000);  // a token each, mostly
  EXPECT_THAT(Find().indices, ElementsAre(4, 1, 0, 2, 3));
}

TEST_F(ClaimWindowTest, RowsThatBeginAlikeGoTogether) {
  std::vector<PromptShape> shapes;
  for (int32_t i = 0; i < 6; ++i) {
    std::vector<int32_t> prompt(64, 5);                                 // the job's instruction
    prompt.insert(prompt.end(), 64, i % 2);                             // the row's document
    prompt.insert(prompt.end(), static_cast<size_t>(10 * (i + 1)), i);  // its question
    shapes.push_back(MakePromptShape(prompt, 1));
  }
  AddJob(shapes, {0, 1, 2, 3, 4, 5});
  EXPECT_THAT(Find().indices, ElementsAre(5, 3, 1, 4, 2, 0));
}

TEST_F(ClaimWindowTest, LooksAtNoMoreRowsThanItIsAskedForAndGoesOnBehindThem) {
  std::vector<PromptShape> shapes;
  for (int64_t i = 0; i < 10; ++i) {
    shapes.push_back({.prompt_tokens = 1 + i, .max_output_tokens = 1});
  }
  AddJob(shapes, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9});
  world_.Write("job", [](JobStore& store) { return store.Claim("job", 2, {1, 3}, 0).status(); });
  search_.limit = 4;
  FoundRows found = Find();
  EXPECT_THAT(found.indices, ElementsAre(5, 4, 2, 0));
  EXPECT_EQ(found.next_index, 6);
  search_.first_index = found.next_index;
  search_.end_index = 8;  // the others are not checked
  found = Find();
  EXPECT_THAT(found.indices, ElementsAre(7, 6));
  EXPECT_EQ(found.next_index, 8);
}

TEST(RunnerDiskTest, AFullDiskPausesTheWorkAndLosesNothing) {
  RunnerWorld world(StoreKind::kMemory);
  world.control.HoldSweeps();
  world.Start();
  v1::JobSpec spec;
  spec.mutable_sampling()->set_max_output_tokens(5);
  std::vector<InputRow> rows;
  for (int32_t i = 0; i < 50; ++i) {
    rows.push_back(TokenRow(absl::StrCat("row-", i), {20 + i}));
  }
  world.Submit("job", rows, spec);
  world.control.WaitForHeldSweep();
  world.Settle();
  world.memory_store()->FailNextCommits(
      std::vector<absl::Status>(7, absl::ResourceExhaustedError("disk full")));
  world.control.ReleaseSweeps();
  const JobRecord job = world.WaitForEnd("job");
  EXPECT_EQ(job.counts.succeeded, 50);
  EXPECT_EQ(world.Results("job").size(), 50U);
}

}  // namespace
}  // namespace nightshift
