#include "server/scheduling/queue_workload.h"

#include <vector>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

constexpr int64_t kContext = 2048;

TEST(QueueWorkloadTest, TakesTheBestThatIsKnownOfALength) {
  const std::vector<QueuedJob> jobs = {{.rows = 10, .max_output_tokens = 64},
                                       {.rows = 10, .row_bytes = 401, .max_output_tokens = 64},
                                       {.rows = 10,
                                        .row_bytes = 400,
                                        .finished_rows = 40,
                                        .finished_prompt_tokens = 4000,
                                        .finished_output_tokens = 410,
                                        .max_output_tokens = 64},
                                       {.rows = 10,
                                        .row_bytes = 400,
                                        .checked_rows = 3,
                                        .checked_tokens = 700,
                                        .limited_rows = 2,
                                        .limit_tokens = 2 * 50,
                                        .finished_rows = 31,
                                        .finished_prompt_tokens = 3100,
                                        .finished_output_tokens = 31,
                                        .max_output_tokens = 64}};
  const WorkloadProfile workload = WorkloadOf(jobs, kContext);
  ASSERT_EQ(workload.classes.size(), 4U);
  EXPECT_EQ(workload.classes[0].prompt_tokens, 512) << "nothing known";
  EXPECT_EQ(workload.classes[0].output_tokens, 64);
  EXPECT_EQ(workload.classes[1].prompt_tokens, 101) << "a quarter of the bytes";
  EXPECT_EQ(workload.classes[2].prompt_tokens, 100) << "as those that have finished";
  EXPECT_EQ(workload.classes[2].output_tokens, 11);
  EXPECT_EQ(workload.classes[3].prompt_tokens, 234) << "as those that were checked";
  EXPECT_EQ(workload.classes[3].output_tokens, 50) << "too few have finished: the rows' own";
}

TEST(QueueWorkloadTest, CountsChoicesAndLeavesOutJobsWithoutRows) {
  const std::vector<QueuedJob> jobs = {{.rows = 0, .max_output_tokens = 9},
                                       {.rows = 5, .choices = 3, .max_output_tokens = 9}};
  const WorkloadProfile workload = WorkloadOf(jobs, kContext);
  ASSERT_EQ(workload.classes.size(), 1U);
  EXPECT_EQ(workload.requests(), 15);
}

TEST(QueueWorkloadTest, StaysWithinTheContext) {
  const std::vector<QueuedJob> jobs = {
      {.rows = 1, .row_bytes = 1'000'000, .max_output_tokens = 100'000}};
  const WorkloadProfile workload = WorkloadOf(jobs, kContext);
  EXPECT_EQ(workload.classes[0].prompt_tokens, kContext - 1);
  EXPECT_EQ(workload.classes[0].output_tokens, 1);
  EXPECT_EQ(LongestRequestTokens(jobs, kContext), kContext);
}

TEST(QueueWorkloadTest, ExpectsALongestPromptAboveTheMean) {
  EXPECT_EQ(LongestRequestTokens(std::vector<QueuedJob>{{.rows = 1,
                                                         .checked_rows = 2,
                                                         .checked_tokens = 200,
                                                         .longest_prompt = 110,
                                                         .limited_rows = 1,
                                                         .limit_tokens = 10,
                                                         .longest_limit = 10,
                                                         .max_output_tokens = 10}},
                                 kContext),
            410);
  EXPECT_EQ(LongestRequestTokens(std::vector<QueuedJob>{{.rows = 1,
                                                         .checked_rows = 20,
                                                         .checked_tokens = 2000,
                                                         .longest_prompt = 900,
                                                         .limited_rows = 1,
                                                         .limit_tokens = 10,
                                                         .longest_limit = 10,
                                                         .max_output_tokens = 10}},
                                 kContext),
            910);
}

TEST(QueueWorkloadTest, CountsWhatIsLeftOfAJob) {
  const QueuedJob job = {.rows = 10,
                         .choices = 2,
                         .checked_rows = 3,
                         .checked_tokens = 300,
                         .max_output_tokens = 40};
  const TokensLeft left = TokensLeftOf(job, 500, 300, kContext);
  EXPECT_EQ(left.prompt, 1500);
  EXPECT_EQ(left.output, 500);
  EXPECT_EQ(left.least_output, 0) << "they may all end early";
  QueuedJob certain = job;
  certain.may_end_early = false;
  EXPECT_EQ(TokensLeftOf(certain, 500, 300, kContext).least_output, 500);
  EXPECT_EQ(TokensLeftOf(job, 5000, 3000, kContext).prompt, 0) << "rows are counted late";
  EXPECT_EQ(TokensLeftOf({}, 0, 0, kContext).output, 0);
}

TEST(QueueWorkloadTest, IsExactOnceSomeRowsOfEveryJobAreKnownByTokensAndLimits) {
  std::vector<QueuedJob> jobs = {{.rows = 3, .checked_rows = 3, .limited_rows = 3}, {.rows = 0}};
  EXPECT_TRUE(IsExact(jobs));
  jobs[0].limited_rows = 2;
  EXPECT_FALSE(IsExact(jobs));
  jobs[0] = {.rows = 1000, .checked_rows = 3, .limited_rows = 32};
  EXPECT_FALSE(IsExact(jobs));
  jobs[0].checked_rows = 32;
  EXPECT_TRUE(IsExact(jobs));
  jobs.push_back({.rows = 5, .row_bytes = 100});
  EXPECT_FALSE(IsExact(jobs));
}

TEST(QueueWorkloadTest, ChangesByTwiceTheRequestsOrAQuarterOfALengthNotByDraining) {
  const auto profile = [](int64_t prompt, int64_t output, int64_t requests) {
    WorkloadProfile workload;
    workload.classes = {{prompt, output, requests}};
    return workload;
  };
  const WorkloadProfile planned = profile(100, 40, 1000);
  EXPECT_FALSE(HasChanged(planned, profile(120, 45, 1999)));
  EXPECT_FALSE(HasChanged(planned, profile(100, 40, 1))) << "it drains";
  EXPECT_TRUE(HasChanged(planned, profile(100, 40, 2000)));
  EXPECT_TRUE(HasChanged(planned, profile(130, 40, 1000)));
  EXPECT_TRUE(HasChanged(planned, profile(100, 20, 1000)));
}

}  // namespace
}  // namespace nightshift
