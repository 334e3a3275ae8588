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

v1::Report Parse(const std::string& bytes) {
  v1::Report report;
  EXPECT_TRUE(report.ParseFromString(bytes));
  return report;
}

TEST(JobReportsTest, TellsSharesBytesAndTheBottleneck) {
  const v1::Report report = MakeReport(StreamedSweep());
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
  reports.Add({"a"}, StreamedSweep());
  reports.Add({"a", "b"}, StreamedSweep());
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
  before.Add({"a"}, StreamedSweep());
  const std::string stored = before.TakeChanged()[0].report;
  JobReports after;
  after.Begin("a", stored);
  EXPECT_THAT(after.TakeChanged(), IsEmpty());
  after.Add({"a"}, StreamedSweep());
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
  reports.Add({"a", "b", "unknown"}, StreamedSweep());
  const std::vector<JobReport> changed = reports.TakeChanged();
  ASSERT_THAT(changed, SizeIs(2));
  for (const JobReport& report : changed) {
    EXPECT_EQ(Parse(report.report).sweeps(), 1);
    EXPECT_THAT(Parse(report.report).lanes(), SizeIs(2));
  }
}

TEST(JobReportsTest, AnEndedJobIsForgottenAndLoggedInOneLine) {
  JobReports reports;
  reports.Begin("a", "");
  reports.Add({"a"}, StreamedSweep());
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
