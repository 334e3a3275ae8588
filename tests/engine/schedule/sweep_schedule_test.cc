#include "engine/schedule/sweep_schedule.h"

#include <algorithm>
#include <numeric>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/kv_page.h"

namespace nightshift {
namespace {

constexpr SweepLimits kWide{.max_sweep_tokens = 1000,
                            .prompt_chunk_tokens = 0,
                            .max_batch_tokens = 1000,
                            .free_pages = 1000};

HeldRequest Decoding(int64_t tokens) {
  return {.computed_tokens = tokens - 1,
          .known_tokens = tokens,
          .pages = RoundUp(tokens - 1, kPagePositions) / kPagePositions};
}

HeldRequest Prompt(int64_t tokens) {
  return {.computed_tokens = 0, .known_tokens = tokens, .pages = 0};
}

std::vector<size_t> RequestsOf(const std::vector<Span>& spans) {
  std::vector<size_t> requests;
  for (const Span& span : spans) {
    requests.push_back(span.request);
  }
  return requests;
}

TEST(SweepScheduleTest, DecodeTokensGoBeforePromptsInOrderOfAdmission) {
  const std::vector<HeldRequest> held = {Prompt(10), Decoding(5), Prompt(20), Decoding(40)};
  const SweepSchedule schedule = ScheduleSweep(held, kWide);
  EXPECT_THAT(RequestsOf(schedule.spans), testing::ElementsAre(1, 3, 0, 2));
  EXPECT_EQ(schedule.num_rows, 32);
  EXPECT_EQ(schedule.spans[0].first_position, 4);
  EXPECT_EQ(schedule.spans[3].first_row, 12);
  EXPECT_EQ(schedule.sampled.size(), 4U);
  EXPECT_EQ(schedule.sampled[3].row, 31);
}

TEST(SweepScheduleTest, APromptChunkSamplesOnlyWhenThePromptIsDone) {
  SweepLimits limits = kWide;
  limits.prompt_chunk_tokens = 16;
  std::vector<HeldRequest> held = {Prompt(40)};
  std::vector<int64_t> chunks;
  while (held[0].computed_tokens < 40) {
    const SweepSchedule schedule = ScheduleSweep(held, limits);
    ASSERT_EQ(schedule.spans.size(), 1U);
    EXPECT_EQ(schedule.spans[0].first_position, held[0].computed_tokens);
    held[0].computed_tokens += schedule.spans[0].num_tokens;
    chunks.push_back(schedule.spans[0].num_tokens);
    EXPECT_EQ(schedule.sampled.empty(), held[0].computed_tokens < 40);
  }
  EXPECT_THAT(chunks, testing::ElementsAre(16, 16, 8));
}

TEST(SweepScheduleTest, ASweepNeverHasMoreTokensThanItsLimit) {
  SweepLimits limits = kWide;
  limits.max_sweep_tokens = 30;
  const std::vector<HeldRequest> held = {Prompt(25), Decoding(5), Prompt(20), Prompt(9)};
  const SweepSchedule schedule = ScheduleSweep(held, limits);
  EXPECT_THAT(RequestsOf(schedule.spans), testing::ElementsAre(1, 0, 2));
  EXPECT_EQ(schedule.spans[2].num_tokens, 4);
  EXPECT_EQ(schedule.num_rows, 30);
}

TEST(SweepScheduleTest, WhatMustBeWholeWaitsForASweepThatHasRoom) {
  SweepLimits limits = kWide;
  limits.max_sweep_tokens = 30;
  HeldRequest whole = Prompt(20);
  whole.whole_pages = 1;
  const std::vector<HeldRequest> held = {Prompt(25), whole, Prompt(9)};
  EXPECT_THAT(RequestsOf(ScheduleSweep(held, limits).spans), testing::ElementsAre(0, 2));
  const SweepSchedule next = ScheduleSweep({{whole, Prompt(64)}}, limits);
  EXPECT_THAT(RequestsOf(next.spans), testing::ElementsAre(0, 1));
  EXPECT_EQ(next.spans[0].num_tokens, 20);
  EXPECT_EQ(next.spans[1].num_tokens, 10);
  limits.free_pages = 2;  // of one layer for the whole, in all layers for the other
  limits.pages_per_stretch = 1;
  EXPECT_EQ(ScheduleSweep({{whole, Prompt(64)}}, limits).num_evicted, 0U);
  limits.free_pages = 1;
  EXPECT_EQ(ScheduleSweep({{whole, Prompt(64)}}, limits).num_evicted, 1U);
}

TEST(SweepScheduleTest, BatchesCutTheRowsByTheTokenBudget) {
  SweepLimits limits = kWide;
  limits.max_batch_tokens = 8;
  const std::vector<HeldRequest> held = {Decoding(3), Prompt(20), Decoding(7)};
  const SweepSchedule schedule = ScheduleSweep(held, limits);
  ASSERT_EQ(schedule.batches.size(), 3U);
  EXPECT_THAT(RequestsOf(schedule.batches[0].spans), testing::ElementsAre(0, 2, 1));
  EXPECT_EQ(schedule.batches[0].spans[2].num_tokens, 6);
  EXPECT_EQ(schedule.batches[1].spans[0].first_position, 6);
  EXPECT_EQ(schedule.batches[1].spans[0].first_row, 8);
  EXPECT_EQ(schedule.batches[2].num_rows, 6);
}

TEST(SweepScheduleTest, EvictsTheYoungestUntilThePagesFit) {
  SweepLimits limits = kWide;
  limits.free_pages = 0;
  // Each holds one full page and needs a second.
  const std::vector<HeldRequest> held(4, Decoding(33));
  const SweepSchedule schedule = ScheduleSweep(held, limits);
  EXPECT_EQ(schedule.num_evicted, 2U);
  EXPECT_THAT(RequestsOf(schedule.spans), testing::ElementsAre(0, 1));
}

TEST(SweepScheduleTest, KeepsAllWhilePagesAreFree) {
  SweepLimits limits = kWide;
  limits.free_pages = 4;
  const std::vector<HeldRequest> held(4, Decoding(33));
  EXPECT_EQ(ScheduleSweep(held, limits).num_evicted, 0U);
}

TEST(SweepScheduleTest, NothingHeldIsAnEmptySweep) {
  const SweepSchedule schedule = ScheduleSweep({}, kWide);
  EXPECT_TRUE(schedule.spans.empty());
  EXPECT_TRUE(schedule.batches.empty());
}

// Random blocks: rows are dense and in order, batches hold every row once, limits are kept, and
// repeated sweeps bring every request to its end.
TEST(SweepScheduleTest, RandomBlocksKeepEveryRule) {
  std::mt19937 generator(11);
  const auto draw = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(generator);
  };
  for (int round = 0; round < 200; ++round) {
    std::vector<HeldRequest> held(static_cast<size_t>(draw(1, 20)));
    for (HeldRequest& request : held) {
      request = draw(0, 1) == 0 ? Decoding(draw(1, 90)) : Prompt(draw(1, 90));
    }
    const SweepLimits limits{.max_sweep_tokens = draw(20, 60),
                             .prompt_chunk_tokens = draw(0, 20),
                             .max_batch_tokens = draw(1, 30),
                             .free_pages = 100000};
    int64_t left = 0;
    for (const HeldRequest& request : held) {
      left += request.known_tokens - request.computed_tokens;
    }
    while (left > 0) {
      std::vector<HeldRequest> pending;
      std::copy_if(held.begin(), held.end(), std::back_inserter(pending),
                   [](const HeldRequest& r) { return r.computed_tokens < r.known_tokens; });
      const SweepSchedule schedule = ScheduleSweep(pending, limits);
      ASSERT_GT(schedule.num_rows, 0);
      ASSERT_LE(schedule.num_rows, limits.max_sweep_tokens);
      int64_t row = 0;
      for (const Batch& batch : schedule.batches) {
        ASSERT_EQ(batch.first_row, row);
        ASSERT_LE(batch.num_rows, limits.max_batch_tokens);
        for (const Span& span : batch.spans) {
          ASSERT_EQ(span.first_row, row);
          ASSERT_EQ(span.first_position, pending[span.request].computed_tokens);
          pending[span.request].computed_tokens += span.num_tokens;
          row += span.num_tokens;
        }
      }
      ASSERT_EQ(row, schedule.num_rows);
      left -= row;
      held = pending;
    }
  }
}

TEST(SweepScheduleTest, CountsThePagesOfAllLayersOfAStretch) {
  SweepLimits limits = kWide;
  limits.pages_per_stretch = 6;
  limits.free_pages = 11;
  // Holds fewer pages than its tokens take: some are behind a window.
  HeldRequest sliding = Decoding(33);
  sliding.pages = 1;
  const std::vector<HeldRequest> held = {sliding, Prompt(40)};
  EXPECT_EQ(ScheduleSweep(held, limits).num_evicted, 1U);
  limits.free_pages = 18;
  EXPECT_EQ(ScheduleSweep(held, limits).num_evicted, 0U);
}

// Where keys pass through staging memory, what is brought for one batch is hidden by what is
// computed of another: each has its part of both.
TEST(SweepScheduleTest, StagedBatchesHaveEqualPartsOfTokensAndPrompts) {
  SweepLimits limits = kWide;
  limits.max_sweep_tokens = 128;
  limits.max_batch_tokens = 32;
  limits.max_batch_pages = 100;
  std::vector<HeldRequest> held(32, Decoding(40));
  held.insert(held.end(), 4, Prompt(100));
  const SweepSchedule schedule = ScheduleSweep(held, limits);
  ASSERT_EQ(schedule.batches.size(), 4U);
  for (const Batch& batch : schedule.batches) {
    EXPECT_EQ(batch.num_rows, 32);
    EXPECT_EQ(std::count_if(batch.spans.begin(), batch.spans.end(),
                            [](const Span& span) { return span.num_tokens == 1; }),
              8);
  }
  EXPECT_EQ(schedule.sampled.size(), 32U);
}

TEST(SweepScheduleTest, StagedBatchesAreCutEvenlyWhereTheyNeedNotBeFull) {
  SweepLimits limits = kWide;
  limits.max_batch_tokens = 100;
  limits.max_batch_pages = 40;
  // Two pages each: 20 a batch, 25 in all.
  const std::vector<HeldRequest> held(25, Decoding(40));
  const SweepSchedule schedule = ScheduleSweep(held, limits);
  ASSERT_EQ(schedule.batches.size(), 2U);
  EXPECT_NEAR(static_cast<double>(schedule.batches[0].num_rows), 12.5, 1.0);
}

}  // namespace
}  // namespace nightshift
