// CudaOps on the CUDA emulator behind views of host memory, so that a test of ops runs on it unchanged.
#pragma once

#include <memory>

#include "kernels/device.h"

namespace nightshift {

// Each op uploads what its arguments refer to, runs, waits, and downloads what it may have written;
// a fault ends the process. Compute types f32 and bf16. All devices of a process share
// one emulated GPU. Only ops of the device may be called. Used from one thread at a time.
std::unique_ptr<Device> CreateEmulatedCudaOps();

}  // namespace nightshift
