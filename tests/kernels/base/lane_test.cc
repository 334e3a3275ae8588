#include "kernels/base/lane.h"

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

// A work that takes `micros` on the clock.
std::function<absl::Status()> Take(FakeClock& clock, int64_t micros) {
  return [&clock, micros] {
    clock.Advance(micros);
    return absl::OkStatus();
  };
}

TEST(LaneTest, RunsWorksInTheOrderOfIssue) {
  const RealClock clock;
  std::vector<int> order;  // plain memory: works that overlap are a race
  std::deque<Fence> done(100);
  {
    Lane lane(clock);
    for (int i = 0; i < 100; ++i) {
      lane.Issue({}, [&order, i] { order.push_back(i); return absl::OkStatus(); },
                 &done[static_cast<size_t>(i)]);
    }
    EXPECT_OK(done.back().Wait());
    EXPECT_TRUE(done.front().is_complete());
  }
  ASSERT_EQ(order.size(), 100U);
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

TEST(LaneTest, AWorkStartsWhenAllItsWaitsAreComplete) {
  const RealClock clock;
  Lane lane(clock);
  Fence first;
  Fence second;
  Fence done;
  bool started = false;
  lane.Issue({&first, &second}, [&] { started = true; return absl::OkStatus(); }, &done);
  second.Complete(absl::OkStatus());
  EXPECT_FALSE(started);
  EXPECT_FALSE(done.is_complete());
  first.Complete(absl::OkStatus());
  EXPECT_OK(done.Wait());
  EXPECT_TRUE(started);
}

TEST(LaneTest, AWorksErrorIsWhatItsFenceSaysAndTheLaneGoesOn) {
  const RealClock clock;
  Lane lane(clock);
  Fence failed;
  Fence next;
  lane.Issue({}, [] { return absl::DataLossError("page 3"); }, &failed);
  lane.Issue({}, [] { return absl::OkStatus(); }, &next);
  EXPECT_THAT(failed.Wait(), StatusIs(absl::StatusCode::kDataLoss, "page 3"));
  EXPECT_OK(next.Wait());
}

TEST(LaneTest, AnErrorSkipsAllThatDependsOnIt) {
  const RealClock clock;
  Lane upload(clock);
  Lane compute(clock);
  Fence read;
  Fence other;
  Fence uploaded;
  Fence computed;
  const auto never = [] { ADD_FAILURE() << "ran"; return absl::OkStatus(); };
  upload.Issue({&other, &read}, never, &uploaded);
  compute.Issue({&uploaded}, never, &computed);
  read.Complete(absl::DataLossError("shard 5"));
  EXPECT_FALSE(uploaded.is_complete());  // it waits for all before it gives up
  other.Complete(absl::OkStatus());
  EXPECT_THAT(computed.Wait(), StatusIs(absl::StatusCode::kDataLoss, "shard 5"));
  EXPECT_EQ(compute.counts().skipped, 1);
  EXPECT_EQ(compute.counts().run, 0);
}

TEST(LaneTest, IsBusyFromTheStartOfAWorkToItsEnd) {
  FakeClock clock;
  Lane lane(clock);
  Fence wait;
  std::deque<Fence> done(3);
  lane.Issue({}, Take(clock, 30), &done[0]);
  EXPECT_OK(done[0].Wait());
  lane.Issue({&wait}, Take(clock, 12), &done[1]);
  clock.Advance(1000);  // the lane waits
  wait.Complete(absl::OkStatus());
  EXPECT_OK(done[1].Wait());
  EXPECT_EQ(lane.counts().busy_us, 42);
  EXPECT_EQ(lane.counts().run, 2);
}

TEST(LaneTest, WhatIsIssuedEndsBeforeTheLaneDoes) {
  const RealClock clock;
  int runs = 0;
  std::deque<Fence> done(50);
  {
    Lane lane(clock);
    for (Fence& fence : done) {
      lane.Issue({}, [&runs] { ++runs; return absl::OkStatus(); }, &fence);
    }
  }
  EXPECT_EQ(runs, 50);
  EXPECT_TRUE(done.back().is_complete());
}

TEST(LaneTest, AWorkIsGoneWhenItsFenceIsComplete) {
  const RealClock clock;
  Lane lane(clock);
  const auto owned = std::make_shared<int>(1);
  Fence done;
  lane.Issue({}, [owned] { return absl::OkStatus(); }, &done);
  EXPECT_OK(done.Wait());
  EXPECT_EQ(owned.use_count(), 1);
}

// Works on several lanes that wait for random earlier ones, some of which fail: each runs after
// what it waits for, on plain memory, or is skipped when any of that failed.
TEST(LaneTest, RandomStepsOnSeveralLanesKeepTheirOrder) {
  std::mt19937 generator(11);
  const auto below = [&](size_t bound) { return generator() % bound; };
  const RealClock clock;
  for (int round = 0; round < 20; ++round) {
    constexpr size_t kSteps = 120;
    std::deque<Fence> done(kSteps);
    std::vector<int> ran(kSteps, 0);
    std::vector<std::vector<size_t>> waits(kSteps);
    std::vector<bool> fails(kSteps);
    {
      std::deque<Lane> lanes;
      for (int i = 0; i < 5; ++i) {
        lanes.emplace_back(clock);
      }
      for (size_t i = 0; i < kSteps; ++i) {
        std::vector<Fence*> fences;
        for (size_t count = i == 0 ? 0 : below(4); count > 0; --count) {
          waits[i].push_back(below(i));
          fences.push_back(&done[waits[i].back()]);
        }
        fails[i] = below(40) == 0;
        lanes[below(lanes.size())].Issue(
            fences,
            [&ran, &wait = waits[i], fail = bool{fails[i]}, i] {
              for (const size_t before : wait) {
                EXPECT_EQ(ran[before], 1);
              }
              ran[i] = 1;
              return fail ? absl::InternalError("fails") : absl::OkStatus();
            },
            &done[i]);
      }
    }
    std::vector<bool> bad(kSteps);
    for (size_t i = 0; i < kSteps; ++i) {
      bool skipped = false;
      for (const size_t before : waits[i]) {
        skipped = skipped || bad[before];
      }
      bad[i] = skipped || fails[i];
      EXPECT_EQ(ran[i], skipped ? 0 : 1);
      EXPECT_EQ(done[i].Wait().ok(), !bad[i]);
    }
  }
}

}  // namespace
}  // namespace nightshift
