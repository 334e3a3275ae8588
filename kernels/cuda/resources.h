// What CUDA gives and takes back, as owners; and what it answers, as a status.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include <cuda_runtime.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift::cuda {

// OK for cudaSuccess. Else the step, CUDA's name of the error and its words. RESOURCE_EXHAUSTED where
// memory is used up, FAILED_PRECONDITION where driver or device are not there, else INTERNAL: such
// errors may be of an earlier step, and most stay until the process ends.
absl::Status CudaStatus(cudaError_t error, absl::string_view step);

struct StreamDeleter {
  using pointer = cudaStream_t;
  void operator()(cudaStream_t stream) const;
};
struct EventDeleter {
  using pointer = cudaEvent_t;
  void operator()(cudaEvent_t event) const;
};
struct DeviceMemoryDeleter {
  void operator()(std::byte* memory) const;
};
using StreamOwner = std::unique_ptr<void, StreamDeleter>;
using EventOwner = std::unique_ptr<void, EventDeleter>;
using DeviceMemory = std::unique_ptr<std::byte, DeviceMemoryDeleter>;

// Of the calling thread's device. The stream orders itself with no other; who waits for the event
// sleeps.
absl::StatusOr<StreamOwner> CreateStream();
absl::StatusOr<EventOwner> CreateEvent();
// For `purpose`, which a refusal names beside what is free. Holds anything.
absl::StatusOr<DeviceMemory> AllocateDeviceMemory(int64_t bytes, absl::string_view purpose);

// Waits for all that the stream was given, asleep.
absl::Status WaitForStream(cudaStream_t stream, cudaEvent_t event, absl::string_view step);

// Host memory of its own that copies need not be told of.
class PinnedMemory {
 public:
  static absl::StatusOr<PinnedMemory> Create(size_t bytes);
  PinnedMemory() = default;
  ~PinnedMemory();
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;

  std::span<std::byte> bytes() const { return bytes_; }

 private:
  std::span<std::byte> bytes_;
};

}  // namespace nightshift::cuda
