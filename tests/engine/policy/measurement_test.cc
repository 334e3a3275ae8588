#include "engine/policy/measurement.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_clock.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

using ::testing::DoubleEq;
using ::testing::ElementsAre;

class MeasurementTest : public ::testing::Test {
 protected:
  struct Kept {
    double rate = 0.0;
    double spread = 0.0;
  };

  // Each call does `amount` in the next of `call_us` microseconds, the last for good.
  void Add(double amount, std::vector<int64_t> call_us) {
    const size_t index = measurements_.size();
    const std::string name(1, static_cast<char>('a' + index));
    kept_.resize(index + 1);
    measurements_.push_back({.name = name,
                             .work = [this, amount, name, call_us,
                                      call = size_t{0}]() mutable -> absl::StatusOr<double> {
                               clock_.Advance(call_us[std::min(call++, call_us.size() - 1)]);
                               calls_ += name;
                               return amount;
                             },
                             .keep =
                                 [this, index](double rate, double spread) {
                                   kept_[index] = {rate, spread};
                                 }});
  }
  absl::StatusOr<MeasureCounts> Measure(const MeasureOptions& options) {
    return MeasureInTurns(measurements_, options, clock_);
  }

  FakeClock clock_;
  std::vector<Measurement> measurements_;
  std::vector<Kept> kept_;
  std::string calls_;  // the names of the works that ran, in order
};

TEST_F(MeasurementTest, RepeatsTheWorkOfATurnUntilItsTimeIsOver) {
  Add(10.0, {4000});
  ASSERT_OK_AND_ASSIGN(const MeasureCounts counts,
                       Measure({.turn_seconds = 0.01, .most_rounds = 1}));
  EXPECT_EQ(calls_, "aaa");
  EXPECT_THAT(kept_[0].rate, DoubleEq(30.0 / 0.012));
  EXPECT_EQ(kept_[0].spread, 0.0);
  EXPECT_EQ(counts.rounds, 1);
  EXPECT_DOUBLE_EQ(counts.seconds, 0.012);
}

TEST_F(MeasurementTest, TakesTurnsInterleaved) {
  Add(1.0, {5000});
  Add(1.0, {5000});
  ASSERT_OK(Measure({.turn_seconds = 0.005, .most_rounds = 3}));
  EXPECT_EQ(calls_, "ababab");
}

TEST_F(MeasurementTest, KeepsTheMedianAndTellsTheSpread) {
  Add(1.0, {10'000, 5000, 10'000, 90'000, 10'000});
  ASSERT_OK_AND_ASSIGN(const MeasureCounts counts,
                       Measure({.turn_seconds = 0.001, .most_rounds = 5}));
  EXPECT_THAT(kept_[0].rate, DoubleEq(100.0));
  EXPECT_THAT(kept_[0].spread, DoubleEq((200.0 - 1.0 / 0.09) / 100.0));
  EXPECT_EQ(counts.median_spread, kept_[0].spread);
}

TEST_F(MeasurementTest, BeginsNoRoundThatWouldEndTooLate) {
  Add(1.0, {1'000'000});
  ASSERT_OK_AND_ASSIGN(const MeasureCounts counts,
                       Measure({.turn_seconds = 0.1, .most_rounds = 100, .most_seconds = 4.5}));
  EXPECT_EQ(counts.rounds, 4);
}

TEST_F(MeasurementTest, TakesOneTurnOfEachHoweverLongItIs) {
  Add(7.0, {60'000'000});
  Add(7.0, {1'000'000});
  ASSERT_OK_AND_ASSIGN(const MeasureCounts counts, Measure({.most_seconds = 1.0}));
  EXPECT_EQ(counts.rounds, 1);
  EXPECT_THAT(kept_[1].rate, DoubleEq(7.0));
}

TEST_F(MeasurementTest, CountsWorkOfLessThanAMicrosecondAsOne) {
  Add(3.0, {0});
  ASSERT_OK(Measure({.turn_seconds = 0.0, .most_rounds = 1}));
  EXPECT_THAT(kept_[0].rate, DoubleEq(3e6));
}

TEST_F(MeasurementTest, NamesTheMeasurementThatDidNotWork) {
  Add(1.0, {1000});
  measurements_.push_back(
      {.name = "the disk",
       .work = [] { return absl::StatusOr<double>(absl::FailedPreconditionError("it broke")); },
       .keep = [](double, double) { FAIL() << "nothing was measured"; }});
  EXPECT_THAT(Measure({}),
              StatusIs(absl::StatusCode::kFailedPrecondition, "measure the disk: it broke"));
}

}  // namespace
}  // namespace nightshift
