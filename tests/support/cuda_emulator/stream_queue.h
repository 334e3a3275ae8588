// How what the emulator runs besides copies, kernels and cuBLAS's products, gets onto a stream.
#pragma once

#include <cstddef>
#include <functional>
#include <vector>

#include "tests/support/cuda_emulator/cuda_runtime.h"

namespace nightshift::cuda_emulator {

// Device memory that a work on a stream reads or writes.
struct Access {
  const void* address = nullptr;
  size_t bytes = 0;
  bool writes = false;
};

// Puts `body` behind what the stream has; it runs once on the stream's thread, with the device's
// memory open to it. `name` is kept by address. What `accesses` declares is held against what other
// streams read and write: two works of which one writes, not ordered by a fence, end the process
// with both names. What is not declared is not looked for.
// Errors, also kept for cudaGetLastError: cudaErrorLaunchOutOfResources where a test asked for a
// refusal, and what is sticky on the device.
cudaError_t EnqueueKernel(cudaStream_t stream, const char* name, std::vector<Access> accesses,
                          std::function<void()> body);
cudaError_t EnqueueKernel(cudaStream_t stream, const char* name, std::function<void()> body);

}  // namespace nightshift::cuda_emulator
