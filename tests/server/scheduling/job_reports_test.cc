#include "server/scheduling/job_reports.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

// A sweep of 100 us in which computing waits for a read.
SweepTimes StreamedSweep() {
  SweepTimes times;
  times.sweeps = 1;
  times.wall_us = 100;
  times.lanes[static_cast<size_t>(LaneId::kRead)] = {.busy_us = 93, .bytes = 1000, .waited_us = 52};
  times.lanes[static_cast<size_t>(LaneId::kCompute)] = {.busy_us = 41};
  return times;
}

ReportedSweep Unplanned() {
  return {.times = StreamedSweep(), .tokens = 8, .pools = {}, .planned = {}};
}

// The same under a plan that had said 80 us, of which 75 for reading.
ReportedSweep Planned() {
  ReportedSweep sweep = Unplanned();
  sweep.pools = {.device = 0, .host = 1000, .kv = 300};
  sweep.planned = PlannedSweep{.lanes = {},
                               .wall_seconds = 80e-6,
                               .pools = {.device = 0, .host = 990, .kv = 400},
                               .constraint = "waits for read 90 % of the time",
                               .requests = 12,
                               .seconds = 1.5,
                               .tokens_per_s = 64.0};
  sweep.planned->lanes[static_cast<size_t>(LaneId::kRead)] = 75e-6;
  return sweep;
}

v1::Report Parse(const std::string& bytes) {
  v1::Report report;
  EXPECT_TRUE(report.ParseFromString(bytes));
  return report;
}

TEST(JobReportsTest, TellsSharesBytesAndTheBottleneck) {
  JobWork work;
  work.Add(Unplanned());
  const v1::Report report = MakeReport(work);
  EXPECT_FALSE(report.has_prediction());
  EXPECT_EQ(report.sweeps(), 1);
  EXPECT_EQ(report.wall_us(), 100);
  EXPECT_EQ(report.bottleneck(), "read 93 %");
  ASSERT_THAT(report.lanes(), SizeIs(2));  // those that had work
  EXPECT_EQ(report.lanes(0).name(), "read");
  EXPECT_DOUBLE_EQ(report.lanes(0).busy_share(), 0.93);
  EXPECT_DOUBLE_EQ(report.lanes(0).waited_share(), 0.52);
  EXPECT_EQ(report.lanes(0).bytes(), 1000);
  EXPECT_EQ(report.lanes(1).name(), "compute");
}

TEST(JobReportsTest, CountsASweepInEachJobThatItHeld) {
  JobReports reports;
  reports.Begin("a", "");
  reports.Begin("b", "");
  reports.Add({"a"}, Unplanned());
  reports.Add({"a", "b"}, Unplanned());
  const std::vector<JobReport> changed = reports.TakeChanged();
  ASSERT_THAT(changed, SizeIs(2));
  EXPECT_EQ(changed[0].job_id, "a");
  EXPECT_EQ(Parse(changed[0].report).sweeps(), 2);
  EXPECT_EQ(Parse(changed[0].report).lanes(0).bytes(), 2000);
  EXPECT_EQ(Parse(changed[1].report).sweeps(), 1);
  EXPECT_THAT(reports.TakeChanged(), IsEmpty());
}

TEST(JobReportsTest, GoesOnFromWhatWasStored) {
  JobReports before;
  before.Begin("a", "");
  before.Add({"a"}, Unplanned());
  const std::string stored = before.TakeChanged()[0].report;
  JobReports after;
  after.Begin("a", stored);
  EXPECT_THAT(after.TakeChanged(), IsEmpty());
  after.Add({"a"}, Unplanned());
  const v1::Report report = Parse(after.TakeChanged()[0].report);
  EXPECT_EQ(report.sweeps(), 2);
  EXPECT_EQ(report.wall_us(), 200);
  EXPECT_EQ(report.lanes(0).busy_us(), 186);
  EXPECT_EQ(report.lanes(0).waited_us(), 104);
  EXPECT_EQ(report.bottleneck(), "read 93 %");
}

TEST(JobReportsTest, WhatDoesNotParseOrIsNotKnownCountsAsNothing) {
  JobReports reports;
  reports.Begin("a", "\xff\xff");
  v1::Report later;
  later.add_lanes()->set_name("a lane of a later version");
  reports.Begin("b", later.SerializeAsString());
  reports.Add({"a", "b", "unknown"}, Unplanned());
  const std::vector<JobReport> changed = reports.TakeChanged();
  ASSERT_THAT(changed, SizeIs(2));
  for (const JobReport& report : changed) {
    EXPECT_EQ(Parse(report.report).sweeps(), 1);
    EXPECT_THAT(Parse(report.report).lanes(), SizeIs(2));
  }
}

TEST(JobReportsTest, TellsWhatWasPredictedOfThePlannedSweepsAlone) {
  JobReports reports;
  reports.Begin("a", "");
  reports.Add({"a"}, Unplanned());
  reports.Add({"a"}, Planned());
  reports.Add({"a"}, Planned());
  const v1::Report report = Parse(reports.TakeChanged()[0].report);
  EXPECT_EQ(report.sweeps(), 3);
  const v1::PredictionReport& prediction = report.prediction();
  EXPECT_EQ(prediction.sweeps(), 2);
  EXPECT_EQ(prediction.wall_us(), 200);
  EXPECT_EQ(prediction.predicted_wall_us(), 160);
  EXPECT_EQ(prediction.tokens(), 16);
  EXPECT_DOUBLE_EQ(prediction.tokens_per_s(), 80'000);
  EXPECT_NEAR(prediction.predicted_tokens_per_s(), 100'000, 1e-6);
  EXPECT_EQ(report.lanes(0).busy_us(), 279);
  EXPECT_EQ(report.lanes(0).compared_us(), 186);
  EXPECT_EQ(report.lanes(0).predicted_us(), 150);
  ASSERT_THAT(prediction.pools(), SizeIs(2));  // those that are there
  EXPECT_EQ(prediction.pools(0).name(), "host");
  EXPECT_EQ(prediction.pools(0).predicted_bytes(), 990);
  EXPECT_EQ(prediction.pools(0).observed_bytes(), 1000);
  EXPECT_EQ(prediction.pools(1).predicted_bytes(), 400);
  EXPECT_EQ(prediction.constraint(), "waits for read 90 % of the time");
  EXPECT_EQ(prediction.planned_requests(), 12);
  EXPECT_EQ(prediction.planned_seconds(), 1.5);
}

TEST(JobReportsTest, APredictionGoesOnFromWhatWasStored) {
  JobReports before;
  before.Begin("a", "");
  before.Add({"a"}, Planned());
  JobReports after;
  after.Begin("a", before.TakeChanged()[0].report);
  after.Add({"a"}, Planned());
  JobReports at_once;
  at_once.Begin("a", "");
  at_once.Add({"a"}, Planned());
  at_once.Add({"a"}, Planned());
  EXPECT_EQ(after.TakeChanged()[0].report, at_once.TakeChanged()[0].report);
}

TEST(JobReportsTest, AStoredPredictionMayBeNonsense) {
  v1::Report stored;
  stored.mutable_prediction()->set_wall_us(-5);
  stored.mutable_prediction()->set_predicted_wall_us(INT64_MIN);
  stored.mutable_prediction()->add_pools()->set_name("a pool of a later version");
  stored.add_lanes()->set_name("read");
  stored.mutable_lanes(0)->set_predicted_us(INT64_MAX);
  JobReports reports;
  reports.Begin("a", stored.SerializeAsString());
  reports.Add({"a"}, Planned());
  EXPECT_EQ(Parse(reports.TakeChanged()[0].report).sweeps(), 1);
  reports.End("a");
}

TEST(JobReportsTest, AnEndedJobTellsHowItsTimeWasPredicted) {
  JobReports reports;
  reports.Begin("a", "");
  reports.Begin("b", "");
  reports.Add({"a"}, Planned());
  reports.Add({"b"}, Unplanned());
  testing::internal::CaptureStderr();
  const std::optional<double> ratio = reports.End("a");
  EXPECT_EQ(reports.End("b"), std::nullopt);
  const std::string log = testing::internal::GetCapturedStderr();
  ASSERT_TRUE(ratio.has_value());
  EXPECT_DOUBLE_EQ(*ratio, 0.8);
  EXPECT_THAT(log, testing::HasSubstr("predicted_us=80 compared_us=100"));
  EXPECT_THAT(log, testing::HasSubstr("read_predicted_us=75 read_compared_us=93"));
  EXPECT_THAT(log, testing::HasSubstr("kv_pages_predicted_bytes=400 kv_pages_bytes=300"));
  EXPECT_THAT(log, testing::HasSubstr("constraint=\"waits for read 90 % of the time\""));
}

TEST(JobReportsTest, AnEndedJobIsForgottenAndLoggedInOneLine) {
  JobReports reports;
  reports.Begin("a", "");
  reports.Add({"a"}, Unplanned());
  testing::internal::CaptureStderr();
  reports.End("a");
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, testing::HasSubstr("job_report job=a sweeps=1 sweeps_us=100 "
                                      "bottleneck=\"read 93 %\" read_busy=0.930 read_bytes=1000 "
                                      "read_waited=0.520 compute_busy=0.410"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 1);
  EXPECT_THAT(reports.TakeChanged(), IsEmpty());
}

}  // namespace
}  // namespace nightshift
