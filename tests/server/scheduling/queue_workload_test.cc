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
  EXPECT_EQ(workload.classes[3].output_tokens, 64) << "too few have finished";
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
                                                         .max_output_tokens = 10}},
                                 kContext),
            410);
  EXPECT_EQ(LongestRequestTokens(std::vector<QueuedJob>{{.rows = 1,
                                                         .checked_rows = 20,
                                                         .checked_tokens = 2000,
                                                         .longest_prompt = 900,
                                                         .max_output_tokens = 10}},
                                 kContext),
            910);
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
