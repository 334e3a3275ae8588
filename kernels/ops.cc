#include "kernels/ops.h"

#include <algorithm>

#include "kernels/base/check.h"

namespace nightshift {

void Ops::ReadRows(MatrixView x, std::span<float> to) {
  CHECK_EQ(static_cast<int64_t>(to.size()), x.rows * x.columns);
  for (int64_t row = 0; row < x.rows; ++row) {
    std::copy_n(x.row(row), x.columns, to.data() + row * x.columns);
  }
}

}  // namespace nightshift
