// The GPUs of this machine, as CUDA counts them.
#pragma once

#include <string>

#include <cuda_runtime.h>

#include "absl/status/statusor.h"

namespace nightshift::cuda {

// Properties of the GPU of that number. Errors: FAILED_PRECONDITION when there is no driver, no GPU,
// none of that number, or one before compute capability 7.5; each names what was tried and what is
// there.
absl::StatusOr<cudaDeviceProp> FindGpu(int number);

// "NVIDIA H200, compute capability 9.0, 139.7 GiB".
std::string DescribeGpu(const cudaDeviceProp& gpu);

}  // namespace nightshift::cuda
