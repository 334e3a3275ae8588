#include "engine/policy/linear_program.h"

#include <limits>
#include <optional>

#include "tests/support/status_matchers.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace nightshift {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Most of 3x + 2y with x + y <= 4, x + 3y <= 8, x <= 3: at (3, 1).
LinearProgram TextbookProgram() {
  return {.cost = {-3, -2},
          .least = {0, 0},
          .most = {3, kInfinity},
          .rows = {{{1, 1}, -kInfinity, 4}, {{1, 3}, -kInfinity, 8}}};
}

TEST(LinearProgramTest, FindsTheBestCorner) {
  ASSERT_OK_AND_ASSIGN(const std::optional<LinearSolution> solution,
                       SolveLinear(TextbookProgram()));
  ASSERT_TRUE(solution.has_value());
  EXPECT_NEAR(solution->cost, -11, 1e-9);
  EXPECT_THAT(solution->columns, ElementsAre(DoubleNear(3, 1e-9), DoubleNear(1, 1e-9)));
}

TEST(LinearProgramTest, PricesARowByWhatOneMoreOfItsBoundChanges) {
  LinearProgram program = TextbookProgram();
  ASSERT_OK_AND_ASSIGN(const std::optional<LinearSolution> solution, SolveLinear(program));
  program.rows[0].most += 0.5;
  ASSERT_OK_AND_ASSIGN(const std::optional<LinearSolution> more, SolveLinear(program));
  ASSERT_TRUE(solution.has_value() && more.has_value());
  EXPECT_NEAR(solution->row_prices[0], (more->cost - solution->cost) / 0.5, 1e-9);
  EXPECT_NEAR(solution->row_prices[1], 0, 1e-9);
}

TEST(LinearProgramTest, TellsThatNothingMeetsAllRows) {
  LinearProgram program = TextbookProgram();
  program.rows.push_back({{1, 0}, 3.5, kInfinity});
  ASSERT_OK_AND_ASSIGN(const std::optional<LinearSolution> solution, SolveLinear(program));
  EXPECT_FALSE(solution.has_value());
}

TEST(LinearProgramTest, RefusesWhatHasNoLeast) {
  LinearProgram program = TextbookProgram();
  program.rows.clear();
  EXPECT_THAT(SolveLinear(program), StatusIs(absl::StatusCode::kInternal, "0 rows and 2 columns"));
}

}  // namespace
}  // namespace nightshift
