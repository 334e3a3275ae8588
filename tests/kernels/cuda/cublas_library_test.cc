#include "kernels/cuda/cublas_library.h"

#include <gtest/gtest.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "tests/support/status_matchers.h"

namespace nightshift::cuda {
namespace {

// The loader's search is this machine's: it may have the library or not.
TEST(CublasLibraryTest, EachCallIsFoundOrTheLibraryIsNamed) {
  const absl::StatusOr<CublasLibrary> library = LoadCublasLibrary();
  if (library.ok()) {
    EXPECT_NE(library->create, nullptr);
    EXPECT_NE(library->find_algorithm, nullptr);
    EXPECT_NE(library->multiply, nullptr);
  } else {
    EXPECT_THAT(library, StatusIs(absl::StatusCode::kFailedPrecondition, "load libcublasLt.so.13"));
    EXPECT_THAT(library, StatusIs(absl::StatusCode::kFailedPrecondition, "install NVIDIA's cuBLAS"));
  }
}

}  // namespace
}  // namespace nightshift::cuda
