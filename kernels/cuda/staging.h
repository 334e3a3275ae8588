// Staging: small arrays of the host on their way to kernels, and what kernels answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>

#include <cuda_runtime.h>

#include "absl/status/statusor.h"

namespace nightshift::cuda {

// Pinned host memory and as much device memory, cut from the front; what is cut lives until the
// stream's work has ended, which is waited for when both are used up. Used from one thread.
class Staging {
 public:
  // Errors: RESOURCE_EXHAUSTED naming the bytes.
  static absl::StatusOr<std::unique_ptr<Staging>> Create(cudaStream_t stream, size_t bytes);
  ~Staging();
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;

  // An array in both memories.
  template <typename T>
  struct Array {
    std::span<T> host;
    T* device = nullptr;
  };

  // Makes room for all arrays of one op: the sum of RoomFor of each. Errors:
  // cudaErrorMemoryAllocation where that is more than there ever was and memory is used up, or a
  // fault of the stream.
  cudaError_t Begin(size_t bytes);
  template <typename T>
  static size_t RoomFor(size_t count) {
    return (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }

  // Within what Begin made room for. What the host's memory holds is left from before.
  template <typename T>
  Array<T> Take(size_t count) {
    const size_t first = used_;
    used_ += RoomFor<T>(count);
    return {{reinterpret_cast<T*>(host_ + first), count}, reinterpret_cast<T*>(device_ + first)};
  }
  // Copies an array to the device, behind what the stream has; `error` keeps a failure.
  template <typename T>
  T* Upload(std::span<const T> values, cudaError_t& error) {
    const Array<T> array = Take<T>(values.size());
    if (values.empty()) return array.device;
    std::memcpy(array.host.data(), values.data(), values.size_bytes());
    const cudaError_t copied = cudaMemcpyAsync(array.device, array.host.data(), values.size_bytes(),
                                               cudaMemcpyHostToDevice, stream_);
    if (error == cudaSuccess) error = copied;
    return array.device;
  }
  // Waits for the stream and for what it left in the array.
  template <typename T>
  cudaError_t Download(const Array<T>& array) {
    if (!array.host.empty()) {
      const cudaError_t copied =
          cudaMemcpyAsync(array.host.data(), array.device, array.host.size_bytes(),
                          cudaMemcpyDeviceToHost, stream_);
      if (copied != cudaSuccess) return copied;
    }
    return cudaStreamSynchronize(stream_);
  }

 private:
  static constexpr size_t kAlignment = 256;

  explicit Staging(cudaStream_t stream) : stream_(stream) {}
  cudaError_t Allocate(size_t bytes);
  void Free();

  cudaStream_t stream_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
  size_t bytes_ = 0;
  size_t used_ = 0;
};

}  // namespace nightshift::cuda
