// A build without CUDA: what there is instead of a device says so.
#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/device.h"

namespace nightshift {
namespace {

absl::Status Absent() {
  return absl::FailedPreconditionError(
      "use a GPU: this nightshift was built without CUDA; build it where nvcc is (CUDA 12 or "
      "later), with -DCUDA=ON to be told what is missing");
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaOptions& /*options*/) {
  return Absent();
}

absl::StatusOr<int64_t> GpuMemoryBytes(int /*gpu*/) {
  return Absent();
}

}  // namespace nightshift
