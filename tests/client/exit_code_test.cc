#include "client/exit_code.h"

#include <cstdint>

#include <gtest/gtest.h>

namespace nightshift {
namespace {

// The numbers are a contract with scripts: they stand here as numbers.
int Of(absl::StatusCode code) {
  return static_cast<int>(ExitCodeOf(absl::Status(code, "x")));
}

int Of(v1::JobState state, int64_t num_failed = 0) {
  v1::JobCounts counts;
  counts.set_total(10);
  counts.set_failed(num_failed);
  return static_cast<int>(ExitCodeOf(state, counts));
}

TEST(ExitCodeTest, FollowsHowTheJobEnded) {
  EXPECT_EQ(Of(v1::JOB_STATE_SUCCEEDED), 0);
  EXPECT_EQ(Of(v1::JOB_STATE_SUCCEEDED, 1), 3);
  EXPECT_EQ(Of(v1::JOB_STATE_SUCCEEDED, 10), 3);
  EXPECT_EQ(Of(v1::JOB_STATE_FAILED), 4);
  EXPECT_EQ(Of(v1::JOB_STATE_CANCELLED, 1), 5);
  EXPECT_EQ(Of(v1::JOB_STATE_EXPIRED), 5);
  EXPECT_EQ(Of(v1::JOB_STATE_RUNNING), 8);
}

TEST(ExitCodeTest, FollowsTheCodeOfAnError) {
  EXPECT_EQ(Of(absl::StatusCode::kNotFound), 6);
  EXPECT_EQ(Of(absl::StatusCode::kUnauthenticated), 7);
  EXPECT_EQ(Of(absl::StatusCode::kPermissionDenied), 7);
  EXPECT_EQ(Of(absl::StatusCode::kUnavailable), 8);
  EXPECT_EQ(Of(absl::StatusCode::kDeadlineExceeded), 8);
  EXPECT_EQ(Of(absl::StatusCode::kInvalidArgument), 9);
  EXPECT_EQ(Of(absl::StatusCode::kDataLoss), 9);
  EXPECT_EQ(Of(absl::StatusCode::kResourceExhausted), 10);
  EXPECT_EQ(Of(absl::StatusCode::kCancelled), 130);
  EXPECT_EQ(Of(absl::StatusCode::kInternal), 1);
  EXPECT_EQ(Of(absl::StatusCode::kFailedPrecondition), 1);
  EXPECT_EQ(Of(absl::StatusCode::kAlreadyExists), 1);
}

}  // namespace
}  // namespace nightshift
