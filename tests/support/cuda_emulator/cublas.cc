// The stand-in calls of cublasLt.h, and the library that kernels/cuda finds them by.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"

#include "kernels/convert.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/dtype.h"
#include "tests/support/cuda_emulator/cublasLt.h"
#include "tests/support/cuda_emulator/runtime.h"
#include "tests/support/cuda_emulator/stream_queue.h"

using nightshift::cuda_emulator::Access;
using nightshift::cuda_emulator::Misuse;

struct cublasLtMatmulDescOpaque_t {
  bool transposes_a = false;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType type = CUDA_R_32F;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;

  int64_t element_bytes() const { return type == CUDA_R_32F ? 4 : 2; }
  size_t bytes() const {
    return static_cast<size_t>(((columns - 1) * stride + rows) * element_bytes());
  }
};
struct cublasLtMatmulPreferenceOpaque_t {
  bool splits_sums = true;
};

namespace {

// Inputs that an algorithm adds up before it adds to the sum; by the number of columns of the
// result, as if tiles were chosen for it.
int64_t PartOf(const cublasLtMatrixLayout_t& d) {
  return d->columns <= 128 ? 16 : d->columns <= 256 ? 32 : 64;
}

float ValueAt(const cublasLtMatrixLayoutOpaque_t& layout, const void* data, int64_t index) {
  switch (layout.type) {
    case CUDA_R_32F:
      return static_cast<const float*>(data)[index];
    case CUDA_R_16F:
      return nightshift::F16ToF32(static_cast<const uint16_t*>(data)[index]);
    case CUDA_R_16BF:
      return nightshift::BF16ToF32(static_cast<const uint16_t*>(data)[index]);
  }
  return 0.0F;
}

std::vector<float> Widened(const cublasLtMatrixLayoutOpaque_t& layout, const void* data) {
  std::vector<float> values;
  values.reserve(static_cast<size_t>(layout.rows * layout.columns));
  for (int64_t column = 0; column < layout.columns; ++column) {
    for (int64_t row = 0; row < layout.rows; ++row) {
      values.push_back(ValueAt(layout, data, column * layout.stride + row));
    }
  }
  return values;
}

// d = a^T b, in parts of `part` inputs.
void Multiply(const cublasLtMatrixLayoutOpaque_t& a_layout, const void* a,
              const cublasLtMatrixLayoutOpaque_t& b_layout, const void* b,
              const cublasLtMatrixLayoutOpaque_t& d_layout, float* d, int64_t part) {
  const std::vector<float> weights = Widened(a_layout, a);
  const std::vector<float> inputs = Widened(b_layout, b);
  const int64_t size = a_layout.rows;
  for (int64_t column = 0; column < d_layout.columns; ++column) {
    for (int64_t row = 0; row < d_layout.rows; ++row) {
      float sum = 0.0F;
      for (int64_t first = 0; first < size; first += part) {
        float partial = 0.0F;
        for (int64_t k = first; k < std::min(size, first + part); ++k) {
          partial += weights[static_cast<size_t>(row * size + k)] *
                     inputs[static_cast<size_t>(column * size + k)];
        }
        sum += partial;
      }
      d[column * d_layout.stride + row] = sum;
    }
  }
}

}  // namespace

const char* cublasLtGetStatusName(cublasStatus_t status) {
  switch (status) {
    case CUBLAS_STATUS_SUCCESS:
      return "CUBLAS_STATUS_SUCCESS";
    case CUBLAS_STATUS_INVALID_VALUE:
      return "CUBLAS_STATUS_INVALID_VALUE";
    case CUBLAS_STATUS_EXECUTION_FAILED:
      return "CUBLAS_STATUS_EXECUTION_FAILED";
    case CUBLAS_STATUS_NOT_SUPPORTED:
      return "CUBLAS_STATUS_NOT_SUPPORTED";
  }
  return "unknown";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = nullptr;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t /*handle*/) {
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* product,
                                        cublasComputeType_t /*compute_type*/,
                                        cudaDataType scale_type) {
  *product = std::make_unique<cublasLtMatmulDescOpaque_t>().release();
  return scale_type == CUDA_R_32F ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t product,
                                              cublasLtMatmulDescAttributes_t /*attribute*/,
                                              const void* value, size_t bytes) {
  if (bytes != sizeof(cublasOperation_t)) return CUBLAS_STATUS_INVALID_VALUE;
  product->transposes_a = *static_cast<const cublasOperation_t*>(value) == CUBLAS_OP_T;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t product) {
  const std::unique_ptr<cublasLtMatmulDescOpaque_t> owned(product);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType type,
                                          uint64_t rows, uint64_t columns, int64_t stride) {
  *layout = std::make_unique<cublasLtMatrixLayoutOpaque_t>(
                cublasLtMatrixLayoutOpaque_t{.type = type,
                                             .rows = static_cast<int64_t>(rows),
                                             .columns = static_cast<int64_t>(columns),
                                             .stride = stride})
                .release();
  return stride >= static_cast<int64_t>(rows) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  const std::unique_ptr<cublasLtMatrixLayoutOpaque_t> owned(layout);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = std::make_unique<cublasLtMatmulPreferenceOpaque_t>().release();
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void* value, size_t bytes) {
  if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK) {
    if (bytes != sizeof(uint32_t)) return CUBLAS_STATUS_INVALID_VALUE;
    preference->splits_sums =
        *static_cast<const uint32_t*>(value) != CUBLASLT_REDUCTION_SCHEME_NONE;
  }
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  const std::unique_ptr<cublasLtMatmulPreferenceOpaque_t> owned(preference);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t /*product*/, cublasLtMatrixLayout_t a,
    cublasLtMatrixLayout_t /*b*/, cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t d,
    cublasLtMatmulPreference_t preference, int asked, cublasLtMatmulHeuristicResult_t results[],
    int* returned) {
  if (preference->splits_sums) {
    Misuse("a product's algorithm may split its sums, in an order that is nobody's");
  }
  *returned = std::min(asked, 1);
  results[0] = {.algo = {}, .workspaceSize = 0, .state = CUBLAS_STATUS_SUCCESS};
  results[0].algo.data[0] = static_cast<uint64_t>(std::min(a->rows, PartOf(d)));
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t /*handle*/,
                                       cublasLtMatmulDesc_t /*product*/,
                                       cublasLtMatrixLayout_t /*a*/, cublasLtMatrixLayout_t /*b*/,
                                       cublasLtMatrixLayout_t /*c*/, cublasLtMatrixLayout_t /*d*/,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  *result = {.algo = *algorithm, .workspaceSize = 0, .state = CUBLAS_STATUS_SUCCESS};
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t /*handle*/, cublasLtMatmulDesc_t product,
                              const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout,
                              const void* b, cublasLtMatrixLayout_t b_layout, const void* beta,
                              const void* /*c*/, cublasLtMatrixLayout_t /*c_layout*/, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* /*workspace*/,
                              size_t /*workspace_bytes*/, cudaStream_t stream) {
  const bool is_plain = product->transposes_a && *static_cast<const float*>(alpha) == 1.0F &&
                        *static_cast<const float*>(beta) == 0.0F && d_layout->type == CUDA_R_32F;
  if (!is_plain || a_layout->rows != b_layout->rows || a_layout->type != b_layout->type ||
      d_layout->rows != a_layout->columns || d_layout->columns != b_layout->columns) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto part = static_cast<int64_t>(algorithm->data[0]);
  const cudaError_t issued = nightshift::cuda_emulator::EnqueueKernel(
      stream, "cublasLtMatmul",
      {Access{.address = a, .bytes = a_layout->bytes(), .writes = false},
       Access{.address = b, .bytes = b_layout->bytes(), .writes = false},
       Access{.address = d, .bytes = d_layout->bytes(), .writes = true}},
      [a_layout = *a_layout, a, b_layout = *b_layout, b, d_layout = *d_layout, d, part] {
        Multiply(a_layout, a, b_layout, b, d_layout, static_cast<float*>(d), part);
      });
  return issued == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

namespace nightshift::cuda {

absl::StatusOr<CublasLibrary> LoadCublasLibrary() {
  return CublasLibrary{.status_name = &cublasLtGetStatusName,
                       .create = &cublasLtCreate,
                       .destroy = &cublasLtDestroy,
                       .create_product = &cublasLtMatmulDescCreate,
                       .set_product = &cublasLtMatmulDescSetAttribute,
                       .destroy_product = &cublasLtMatmulDescDestroy,
                       .create_layout = &cublasLtMatrixLayoutCreate,
                       .destroy_layout = &cublasLtMatrixLayoutDestroy,
                       .create_preference = &cublasLtMatmulPreferenceCreate,
                       .set_preference = &cublasLtMatmulPreferenceSetAttribute,
                       .destroy_preference = &cublasLtMatmulPreferenceDestroy,
                       .find_algorithm = &cublasLtMatmulAlgoGetHeuristic,
                       .check_algorithm = &cublasLtMatmulAlgoCheck,
                       .multiply = &cublasLtMatmul};
}

}  // namespace nightshift::cuda
