#include "server/http/status_page.h"

#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace nightshift {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kHostile[] =
    "</td><script>alert(\"x\")</script><img src='y' onerror=z>&amp;\x1b[2J\xff";
constexpr char kHarmless[] =
    "&lt;/td&gt;&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt;&lt;img src=&#39;y&#39; "
    "onerror=z&gt;&amp;amp;\\x1b[2J?";

DaemonStatus Status() {
  DaemonStatus status;
  status.info.set_version("1.2");
  status.info.mutable_start_time()->set_seconds(1'000'000);
  status.info.set_memory_budget_bytes(int64_t{8} << 30);
  status.now_us = 1'003'661 * int64_t{1'000'000};
  status.checks = {{"store", absl::OkStatus()}, {"engine", absl::OkStatus()}};
  status.runner.policy = std::make_shared<const PolicyState>();
  return status;
}

v1::Job Job(const std::string& name) {
  v1::Job job;
  job.set_name(name);
  job.set_state(v1::JOB_STATE_RUNNING);
  job.mutable_counts()->set_total(1'234'567);
  job.mutable_counts()->set_succeeded(617'283);
  job.mutable_counts()->set_pending(617'284);
  return job;
}

TEST(StatusPageTest, EscapesWhatHtmlGivesAMeaning) {
  EXPECT_EQ(EscapeHtml(kHostile), kHarmless);
  EXPECT_EQ(EscapeHtml("caf\xc3\xa9 \xe6\x97\xa5"), "caf\xc3\xa9 \xe6\x97\xa5");
  EXPECT_EQ(EscapeHtml(""), "");
}

TEST(StatusPageTest, NothingOfCallersAndFilesBecomesMarkup) {
  DaemonStatus status = Status();
  v1::Job job = Job(kHostile);
  (*job.mutable_labels())[kHostile] = kHostile;
  job.mutable_spec()->set_model(kHostile);
  job.set_waits_for_model(kHostile);
  status.open_jobs = {job};
  status.checks.push_back({kHostile, absl::UnavailableError(kHostile)});
  status.runner.loaded_model = kHostile;
  status.runner.device = kHostile;
  status.info.set_version(kHostile);
  CatalogModel model;
  model.name = kHostile;
  model.status = absl::NotFoundError(kHostile);
  status.models = {model};
  const std::string page =
      StatusPage(status, {{.wall_us = 1, .level = LogLevel::kError, .text = kHostile}});
  EXPECT_THAT(page, AllOf(Not(HasSubstr("<script")), Not(HasSubstr("<img")), Not(HasSubstr("\x1b")),
                          Not(HasSubstr("\xff"))));
  EXPECT_THAT(page, HasSubstr(kHarmless));
}

TEST(StatusPageTest, TellsHowFarJobsAre) {
  DaemonStatus status = Status();
  v1::Job job = Job("jobs/night");
  job.mutable_progress()->mutable_eta()->set_seconds(3 * 3600 + 120);
  (*job.mutable_labels())["owner"] = "archive";
  status.open_jobs = {job};
  status.num_jobs = {{JobState::kRunning, 1}, {JobState::kSucceeded, 2000}};
  const std::string page = StatusPage(status, {});
  EXPECT_THAT(page, AllOf(HasSubstr("jobs/night"), HasSubstr("owner=archive"), HasSubstr("50 %"),
                          HasSubstr("617,283 / 1,234,567"), HasSubstr("3 h 2 min left"),
                          HasSubstr("1 open, 2,000 succeeded"), HasSubstr("up for 1 h 1 min"),
                          HasSubstr("ready"), HasSubstr("none since the start")));
}

TEST(StatusPageTest, TellsWhatLanesDid) {
  DaemonStatus status = Status();
  status.runner.times.sweeps = 7;
  status.runner.times.wall_us = 10'000'000;
  status.runner.times.lanes[static_cast<size_t>(LaneId::kRead)] = {
      .busy_us = 9'300'000, .bytes = int64_t{3} << 30, .waited_us = 5'000'000};
  const std::string page = StatusPage(status, {});
  EXPECT_THAT(page, AllOf(HasSubstr("of 7 sweeps"), HasSubstr("width:93.0%"), HasSubstr("50 %"),
                          HasSubstr("3.0 GiB"), Not(HasSubstr("upload"))));
}

TEST(StatusPageTest, AnIdleEngineLooksIdle) {
  DaemonStatus status = Status();
  EXPECT_THAT(StatusPage(status, {}),
              AllOf(HasSubstr("none is loaded"), HasSubstr("none is reserved, 8.0 GiB at most"),
                    Not(HasSubstr("0 of 0 requests")), Not(HasSubstr("tokens/s"))));
  status.runner.loaded_model = "llama";
  status.runner.max_block_requests = 256;
  status.runner.engine_memory_bytes = int64_t{8} << 30;
  status.runner.times.sweeps = 3;
  status.runner.times.wall_us = 400;
  const std::string page = StatusPage(status, {});
  EXPECT_THAT(page, AllOf(HasSubstr("idle"), HasSubstr("0 of 256 requests"),
                          HasSubstr("8.0 GiB of 8.0 GiB reserved"), Not(HasSubstr("100 %")),
                          HasSubstr("which took less than a second"), Not(HasSubstr(", 0 s"))));
}

TEST(StatusPageTest, ListsAHundredJobsAndCountsTheOthers) {
  DaemonStatus status = Status();
  status.open_jobs.assign(250, Job("jobs/many"));
  EXPECT_THAT(StatusPage(status, {}), HasSubstr("and 150 more: nightshift list"));
}

TEST(StatusPageTest, SaysWhenTheStoreCannotTell) {
  DaemonStatus status = Status();
  status.jobs_status = absl::DataLossError("database is <damaged>");
  EXPECT_THAT(StatusPage(status, {}), HasSubstr("database is &lt;damaged&gt;"));
}

}  // namespace
}  // namespace nightshift
