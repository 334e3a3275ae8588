#include "kernels/cuda/resources.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include <sys/mman.h>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace nightshift::cuda {

absl::Status CudaStatus(cudaError_t error, absl::string_view step) {
  if (error == cudaSuccess) return absl::OkStatus();
  const std::string message =
      absl::StrCat(step, ": ", cudaGetErrorName(error), ", ", cudaGetErrorString(error));
  switch (error) {
    case cudaErrorMemoryAllocation:
      return absl::ResourceExhaustedError(message);
    case cudaErrorInsufficientDriver:
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
      return absl::FailedPreconditionError(message);
    default:
      return absl::InternalError(message);
  }
}

void StreamDeleter::operator()(cudaStream_t stream) const {
  cudaStreamDestroy(stream);
}

void EventDeleter::operator()(cudaEvent_t event) const {
  cudaEventDestroy(event);
}

void DeviceMemoryDeleter::operator()(std::byte* memory) const {
  cudaFree(memory);
}

absl::StatusOr<StreamOwner> CreateStream() {
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(
      CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "create a stream"));
  return StreamOwner(stream);
}

absl::StatusOr<EventOwner> CreateEvent() {
  cudaEvent_t event = nullptr;
  RETURN_IF_ERROR(CudaStatus(
      cudaEventCreateWithFlags(&event, cudaEventBlockingSync | cudaEventDisableTiming),
      "create an event"));
  return EventOwner(event);
}

absl::StatusOr<DeviceMemory> AllocateDeviceMemory(int64_t bytes, absl::string_view purpose) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, static_cast<size_t>(bytes));
  if (error == cudaSuccess) return DeviceMemory(static_cast<std::byte*>(memory));
  cudaGetLastError();  // the refusal leaves nothing behind
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  cudaMemGetInfo(&free_bytes, &total_bytes);
  return CudaStatus(error, absl::StrCat("allocate ", bytes, " bytes of device memory for ", purpose,
                                        " (free ", free_bytes, " of ", total_bytes, ")"));
}

absl::Status WaitForStream(cudaStream_t stream, cudaEvent_t event, absl::string_view step) {
  RETURN_IF_ERROR(CudaStatus(cudaEventRecord(event, stream), step));
  return CudaStatus(cudaEventSynchronize(event), step);
}

absl::StatusOr<PinnedMemory> PinnedMemory::Create(size_t bytes) {
  void* mapped =
      mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("map ", bytes, " bytes for copies: ", std::strerror(errno)));
  }
  const cudaError_t error = cudaHostRegister(mapped, bytes, cudaHostRegisterDefault);
  if (error != cudaSuccess) {
    cudaGetLastError();
    munmap(mapped, bytes);
    return CudaStatus(error, absl::StrCat("pin ", bytes, " bytes for copies"));
  }
  PinnedMemory memory;
  memory.bytes_ = {static_cast<std::byte*>(mapped), bytes};
  return memory;
}

PinnedMemory::~PinnedMemory() {
  if (!bytes_.empty()) {
    cudaHostUnregister(bytes_.data());
    CHECK_EQ(munmap(bytes_.data(), bytes_.size()), 0);
  }
}

PinnedMemory::PinnedMemory(PinnedMemory&& other) noexcept
    : bytes_(std::exchange(other.bytes_, {})) {}

PinnedMemory& PinnedMemory::operator=(PinnedMemory&& other) noexcept {
  std::swap(bytes_, other.bytes_);
  return *this;
}

}  // namespace nightshift::cuda
