// LinearProgram: a small dense linear program, and its solution by COIN-OR CLP.
#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"

namespace nightshift {

struct LinearRow {
  std::vector<double> of;  // by column
  double least = 0.0;      // of the sum over columns; -infinity for none
  double most = 0.0;       // infinity for none
};

struct LinearProgram {
  std::vector<double> cost;  // by column; the sum is made least
  std::vector<double> least;
  std::vector<double> most;
  std::vector<LinearRow> rows;

  size_t num_columns() const { return cost.size(); }
};

struct LinearSolution {
  double cost = 0.0;
  std::vector<double> columns;
  // By row: change of the cost when its bound that holds grows by 1.
  std::vector<double> row_prices;
};

// Absolute: bounds and rows hold within it, so they should be of the order of 1.
inline constexpr double kLinearTolerance = 1e-9;

// Nothing when no columns meet all rows. The same program gives the same solution.
// Errors: INTERNAL when the solver gives up, with the sizes.
absl::StatusOr<std::optional<LinearSolution>> SolveLinear(const LinearProgram& program);

}  // namespace nightshift
