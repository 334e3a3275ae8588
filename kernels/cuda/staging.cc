#include "kernels/cuda/staging.h"

#include <sys/mman.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

namespace nightshift::cuda {

absl::StatusOr<std::unique_ptr<Staging>> Staging::Create(cudaStream_t stream, size_t bytes) {
  auto staging = std::unique_ptr<Staging>(new Staging(stream));
  if (const cudaError_t error = staging->Allocate(bytes); error != cudaSuccess) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "take ", bytes, " bytes of pinned and of device memory to stage arrays of ops: ",
        cudaGetErrorString(error)));
  }
  return staging;
}

Staging::~Staging() {
  cudaStreamSynchronize(stream_);
  Free();
}

cudaError_t Staging::Begin(size_t bytes) {
  if (used_ + bytes <= bytes_) return cudaSuccess;
  const cudaError_t ended = cudaStreamSynchronize(stream_);
  used_ = 0;
  if (ended != cudaSuccess || bytes <= bytes_) return ended;
  Free();
  return Allocate(bytes);
}

cudaError_t Staging::Allocate(size_t bytes) {
  void* host = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(host != MAP_FAILED);
  void* device = nullptr;
  cudaError_t error = cudaHostRegister(host, bytes, cudaHostRegisterDefault);
  if (error == cudaSuccess) {
    error = cudaMalloc(&device, bytes);
    if (error != cudaSuccess) cudaHostUnregister(host);
  }
  if (error != cudaSuccess) {
    munmap(host, bytes);
    return error;
  }
  host_ = static_cast<std::byte*>(host);
  device_ = static_cast<std::byte*>(device);
  bytes_ = bytes;
  return cudaSuccess;
}

void Staging::Free() {
  if (host_ == nullptr) return;
  cudaFree(device_);
  cudaHostUnregister(host_);
  munmap(host_, bytes_);
  host_ = nullptr;
  device_ = nullptr;
  bytes_ = 0;
}

}  // namespace nightshift::cuda
