// CopyLane: copies in one direction, in order, on a stream of their own.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "kernels/cuda/resources.h"

namespace nightshift::cuda {

// Each call returns when its bytes are there. Used by one thread at a time.
class CopyLane {
 public:
  // Of the calling thread's device. Errors: RESOURCE_EXHAUSTED, INTERNAL.
  static absl::StatusOr<CopyLane> Create();

  // `is_pinned`: the host's memory can be copied from or to as it is; else it goes through memory of
  // the lane, which costs one more pass by this thread. Errors: INTERNAL.
  absl::Status Upload(std::span<const std::byte> from, std::span<std::byte> to, bool is_pinned);
  absl::Status Download(std::span<const std::byte> from, std::span<std::byte> to, bool is_pinned);

  cudaStream_t stream() const { return stream_.get(); }
  // Waits for all that the stream was given. `step` names it in an error.
  absl::Status Wait(absl::string_view step);

 private:
  struct Stage {
    PinnedMemory memory;
    EventOwner copied;
  };
  std::array<Stage, 2> stages_;
  EventOwner event_;
  // Last: what it still does ends before what it uses goes.
  StreamOwner stream_;
};

}  // namespace nightshift::cuda
