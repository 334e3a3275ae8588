#include "engine/policy/linear_program.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

#include "coin/Clp_C_Interface.h"

namespace nightshift {
namespace {

// CLP's "optimal" and "primal infeasible".
constexpr int kOptimal = 0;
constexpr int kInfeasible = 1;

struct DeleteModel {
  void operator()(Clp_Simplex* model) const { Clp_deleteModel(model); }
};
using Model = std::unique_ptr<Clp_Simplex, DeleteModel>;

// Column by column, as CLP takes a matrix; zeros are left out.
struct Matrix {
  std::vector<CoinBigIndex> starts = {0};
  std::vector<int> rows;
  std::vector<double> values;
};

Matrix MatrixOf(const LinearProgram& program) {
  Matrix matrix;
  for (size_t column = 0; column < program.num_columns(); ++column) {
    for (size_t row = 0; row < program.rows.size(); ++row) {
      const double value = program.rows[row].of[column];
      if (value != 0.0) {
        matrix.rows.push_back(static_cast<int>(row));
        matrix.values.push_back(value);
      }
    }
    matrix.starts.push_back(static_cast<CoinBigIndex>(matrix.rows.size()));
  }
  return matrix;
}

Model Load(const LinearProgram& program) {
  const Matrix matrix = MatrixOf(program);
  std::vector<double> least;
  std::vector<double> most;
  for (const LinearRow& row : program.rows) {
    least.push_back(row.least);
    most.push_back(row.most);
  }
  Model model(Clp_newModel());
  Clp_setLogLevel(model.get(), 0);
  Clp_loadProblem(model.get(), static_cast<int>(program.num_columns()),
                  static_cast<int>(program.rows.size()), matrix.starts.data(), matrix.rows.data(),
                  matrix.values.data(), program.least.data(), program.most.data(),
                  program.cost.data(), least.data(), most.data());
  // The caller's scaling says what is exact enough; CLP's own would move the tolerances.
  Clp_scaling(model.get(), 0);
  Clp_setPrimalTolerance(model.get(), kLinearTolerance);
  Clp_setDualTolerance(model.get(), kLinearTolerance);
  return model;
}

}  // namespace

absl::StatusOr<std::optional<LinearSolution>> SolveLinear(const LinearProgram& program) {
  CHECK(program.least.size() == program.num_columns() &&
        program.most.size() == program.num_columns());
  CHECK(std::all_of(program.rows.begin(), program.rows.end(),
                    [&](const LinearRow& row) { return row.of.size() == program.num_columns(); }));
  // Costs that are not negative make the dual's first basis a good one. CLP's primal may give up on
  // a program that has no solution (status 4, seen at this tolerance with CLP 1.17).
  Model model = Load(program);
  Clp_dual(model.get(), 0);
  int status = Clp_status(model.get());
  if (status != kOptimal && status != kInfeasible) {
    model = Load(program);
    Clp_primal(model.get(), 0);
    status = Clp_status(model.get());
  }
  if (status == kInfeasible) {
    return std::optional<LinearSolution>();
  }
  if (status != kOptimal) {
    return absl::InternalError(absl::StrCat("a linear program of ", program.rows.size(),
                                            " rows and ", program.num_columns(),
                                            " columns ended with CLP's status ", status));
  }
  LinearSolution solution;
  solution.cost = Clp_objectiveValue(model.get());
  const double* columns = Clp_primalColumnSolution(model.get());
  solution.columns.assign(columns, columns + program.num_columns());
  const double* prices = Clp_dualRowSolution(model.get());
  solution.row_prices.assign(prices, prices + program.rows.size());
  return std::optional<LinearSolution>(std::move(solution));
}

}  // namespace nightshift
