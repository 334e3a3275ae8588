#include "kernels/base/status_macros.h"

#include <memory>
#include <string>

#include <gtest/gtest.h>

#include "kernels/base/check.h"
#include "tests/support/status_matchers.h"

namespace nightshift {
namespace {

absl::StatusOr<int> Half(int value) {
  if (value % 2 != 0) return absl::InvalidArgumentError("odd");
  return value / 2;
}

absl::StatusOr<int> Quarter(int value, int& steps) {
  ASSIGN_OR_RETURN(const int half, Half(value));
  ++steps;
  int quarter = 0;
  ASSIGN_OR_RETURN(quarter, Half(half));
  ++steps;
  return quarter;
}

absl::Status CheckAll(const absl::Status& first, bool& went_on) {
  RETURN_IF_ERROR(first);
  went_on = true;
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<int>> Box(int value) {
  ASSIGN_OR_RETURN(std::unique_ptr<int> box, [&]() -> absl::StatusOr<std::unique_ptr<int>> {
    return std::make_unique<int>(value);
  }());
  return box;
}

TEST(StatusMacrosTest, AssignsTheValueAndGoesOn) {
  int steps = 0;
  ASSERT_OK_AND_ASSIGN(const int quarter, Quarter(12, steps));
  EXPECT_EQ(quarter, 3);
  EXPECT_EQ(steps, 2);
}

TEST(StatusMacrosTest, ReturnsTheFirstErrorAtOnce) {
  int steps = 0;
  EXPECT_THAT(Quarter(6, steps), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
  EXPECT_EQ(steps, 1);
  EXPECT_THAT(Quarter(7, steps), StatusIs(absl::StatusCode::kInvalidArgument, "odd"));
  EXPECT_EQ(steps, 1);
}

TEST(StatusMacrosTest, ReturnIfErrorPassesTheStatusOn) {
  bool went_on = false;
  EXPECT_THAT(CheckAll(absl::DataLossError("torn"), went_on),
              StatusIs(absl::StatusCode::kDataLoss, "torn"));
  EXPECT_FALSE(went_on);
  EXPECT_OK(CheckAll(absl::OkStatus(), went_on));
  EXPECT_TRUE(went_on);
}

TEST(StatusMacrosTest, MovesValuesThatCannotBeCopied) {
  ASSERT_OK_AND_ASSIGN(const auto box, Box(5));
  EXPECT_EQ(*box, 5);
}

TEST(CheckTest, AbortsWithConditionAndNumbers) {
  CHECK(true);
  CHECK_EQ(2 + 2, 4);
  EXPECT_DEATH(CHECK(1 > 2), "CHECK\\(1 > 2\\)");
  EXPECT_DEATH(CHECK_LE(5, 3), "5 <= 3.*\\(5 against 3\\)");
}

}  // namespace
}  // namespace nightshift
