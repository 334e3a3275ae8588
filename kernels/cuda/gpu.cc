#include "kernels/cuda/gpu.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "kernels/base/status_macros.h"
#include "kernels/cuda/resources.h"

namespace nightshift::cuda {
namespace {

// The least compute capability whose tensor cores and instructions the kernels are built for.
constexpr int kLeastCapability = 75;

// "13.0" of CUDA's 13000.
std::string VersionText(int version) {
  return absl::StrCat(version / 1000, ".", version % 1000 / 10);
}

}  // namespace

std::string DescribeGpu(const cudaDeviceProp& gpu) {
  return absl::StrFormat("%s, compute capability %d.%d, %.1f GiB", gpu.name, gpu.major, gpu.minor,
                         static_cast<double>(gpu.totalGlobalMem) / (int64_t{1} << 30));
}

absl::StatusOr<cudaDeviceProp> FindGpu(int number) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess) {
    cudaGetLastError();
    int driver = 0;
    cudaDriverGetVersion(&driver);
    return CudaStatus(counted,
                      absl::StrCat("count GPUs by the CUDA driver (libcuda.so.1), which is ",
                                   driver == 0 ? "not there" : "of CUDA " + VersionText(driver)));
  }
  std::string all;
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp gpu;
    RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&gpu, i), absl::StrCat("look at GPU ", i)));
    const bool is_old = gpu.major * 10 + gpu.minor < kLeastCapability;
    if (i == number && is_old) {
      return absl::FailedPreconditionError(absl::StrCat(
          "use GPU ", i, ", ", DescribeGpu(gpu), ": the least compute capability is 7.5"));
    }
    if (i == number) return gpu;
    absl::StrAppend(&all, i == 0 ? "" : "; ", i, ": ", DescribeGpu(gpu));
  }
  return absl::FailedPreconditionError(
      absl::StrCat("use GPU ", number, ": this machine has ", count, " (", all, ")"));
}

}  // namespace nightshift::cuda
