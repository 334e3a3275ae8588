#include "engine/policy/profile_refinement.h"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

constexpr LaneId kLane = LaneId::kCompute;

void Observe(ProfileRefinement& refinement, double ratio, size_t times) {
  for (size_t i = 0; i < times; ++i) {
    refinement.Observe(kLane, 2.0, 2.0 * ratio);
  }
}

TEST(ProfileRefinementTest, SaysNothingUntilEnoughSweepsWereSeen) {
  ProfileRefinement refinement;
  EXPECT_EQ(refinement.Factor(kLane), 1.0);
  Observe(refinement, 1.5, ProfileRefinement::kLeast - 1);
  EXPECT_EQ(refinement.Factor(kLane), 1.0);
  Observe(refinement, 1.5, 1);
  EXPECT_NEAR(refinement.Factor(kLane), 1.5, 1e-12);
}

TEST(ProfileRefinementTest, KeepsLanesApart) {
  ProfileRefinement refinement;
  Observe(refinement, 1.5, 10);
  EXPECT_EQ(refinement.Factor(LaneId::kRead), 1.0);
  EXPECT_EQ(refinement.Factor(LaneId::kWrite), 1.0);
}

TEST(ProfileRefinementTest, IsNotMovedByAFewDisturbedSweeps) {
  ProfileRefinement refinement;
  Observe(refinement, 1.1, 12);
  Observe(refinement, 40.0, 5);
  EXPECT_NEAR(refinement.Factor(kLane), 1.1, 1e-12);
}

TEST(ProfileRefinementTest, FollowsAMachineThatHasChanged) {
  ProfileRefinement refinement;
  Observe(refinement, 0.8, 100);
  EXPECT_NEAR(refinement.Factor(kLane), 0.8, 1e-12);
  Observe(refinement, 1.6, ProfileRefinement::kRecent);
  EXPECT_NEAR(refinement.Factor(kLane), 1.6, 1e-12);
  EXPECT_EQ(refinement.recent(kLane).size(), ProfileRefinement::kRecent);
}

TEST(ProfileRefinementTest, TakesTheMiddleOfTwoWhereTheirNumberIsEven) {
  ProfileRefinement refinement;
  Observe(refinement, 1.0, 3);
  Observe(refinement, 1.44, 3);
  EXPECT_NEAR(refinement.Factor(kLane), 1.2, 1e-12);
}

TEST(ProfileRefinementTest, StaysWithinItsBounds) {
  ProfileRefinement slow;
  Observe(slow, 1e9, 50);
  EXPECT_DOUBLE_EQ(slow.Factor(kLane), 2.0);
  ProfileRefinement fast;
  Observe(fast, 1e-9, 50);
  EXPECT_DOUBLE_EQ(fast.Factor(kLane), 0.5);
  for (const double ratio : slow.recent(kLane)) {
    EXPECT_LE(ratio, std::log(ProfileRefinement::kMostRatio));
  }
}

TEST(ProfileRefinementTest, LeavesOutTimesThatAreNone) {
  ProfileRefinement refinement;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double time : {0.0, -1.0, nan, infinity}) {
    refinement.Observe(kLane, time, 1.0);
    refinement.Observe(kLane, 1.0, time);
  }
  EXPECT_TRUE(refinement.empty());
  refinement.Observe(kLane, 1e-308, 1e308);  // their ratio is above what a double holds
  EXPECT_TRUE(std::isfinite(refinement.recent(kLane).at(0)));
}

TEST(ProfileRefinementTest, IsTheSameAfterBeingKept) {
  ProfileRefinement refinement;
  for (int i = 1; i < 20; ++i) {
    refinement.Observe(kLane, 3.0, 0.3 * i);
  }
  ProfileRefinement restored;
  for (const double ratio : refinement.recent(kLane)) {
    ASSERT_OK(restored.Restore(kLane, ratio));
  }
  EXPECT_EQ(restored, refinement);
  EXPECT_EQ(restored.Factor(kLane), refinement.Factor(kLane));
}

TEST(ProfileRefinementTest, RestoresOnlyWhatItCanHaveKept) {
  ProfileRefinement refinement;
  EXPECT_THAT(refinement.Restore(kLane, 5.0),
              StatusIs(absl::StatusCode::kInvalidArgument, "5 is not within"));
  EXPECT_THAT(refinement.Restore(kLane, std::numeric_limits<double>::quiet_NaN()),
              StatusIs(absl::StatusCode::kInvalidArgument, "nan is not within"));
  Observe(refinement, 1.0, ProfileRefinement::kRecent);
  EXPECT_THAT(refinement.Restore(kLane, 0.0),
              StatusIs(absl::StatusCode::kInvalidArgument, "more than"));
}

}  // namespace
}  // namespace nightshift
