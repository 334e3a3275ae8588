// The calls of cuBLASLt that we make, found when a device is created: the library is 500 MB, takes a
// process 0.1 s to load, and a machine without a GPU does not have it.
#pragma once

#include <cublasLt.h>

#include "absl/status/statusor.h"

namespace nightshift::cuda {

// A copy of the library's addresses, which stays loaded.
struct CublasLibrary {
  decltype(&cublasLtGetStatusName) status_name = nullptr;
  decltype(&cublasLtCreate) create = nullptr;
  decltype(&cublasLtDestroy) destroy = nullptr;
  decltype(&cublasLtMatmulDescCreate) create_product = nullptr;
  decltype(&cublasLtMatmulDescSetAttribute) set_product = nullptr;
  decltype(&cublasLtMatmulDescDestroy) destroy_product = nullptr;
  decltype(&cublasLtMatrixLayoutCreate) create_layout = nullptr;
  decltype(&cublasLtMatrixLayoutDestroy) destroy_layout = nullptr;
  decltype(&cublasLtMatmulPreferenceCreate) create_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceSetAttribute) set_preference = nullptr;
  decltype(&cublasLtMatmulPreferenceDestroy) destroy_preference = nullptr;
  decltype(&cublasLtMatmulAlgoGetHeuristic) find_algorithm = nullptr;
  decltype(&cublasLtMatmulAlgoCheck) check_algorithm = nullptr;
  decltype(&cublasLtMatmul) multiply = nullptr;
};

// Errors: FAILED_PRECONDITION naming the library, what the loader says of it and what to install.
absl::StatusOr<CublasLibrary> LoadCublasLibrary();

}  // namespace nightshift::cuda
