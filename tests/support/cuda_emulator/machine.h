// The machine that the emulator is: what a test sets before it makes a device, and faults that it
// asks for.
#pragma once

#include <cstddef>
#include <cstdint>

#include "tests/support/cuda_emulator/cuda_runtime.h"

namespace nightshift::cuda_emulator {

struct Machine {
  int driver_version = 13000;  // 0: there is no driver
  int num_devices = 1;
  size_t device_bytes = size_t{256} << 20;
  int major = 9;  // compute capability
  int minor = 0;
  // Works run only while some thread waits for a stream or an event: as late as they may. Then what
  // the host touches too early is found whatever the timing.
  bool runs_late = true;
};

// No stream, event or device memory may be left of what was there. Forgets faults, errors included.
void SetMachine(const Machine& machine);

enum class Fault : uint8_t {
  kAllocation,    // cudaMalloc is refused: cudaErrorMemoryAllocation
  kRegistration,  // cudaHostRegister is refused: cudaErrorMemoryAllocation
  kLaunch,        // a launch is refused: cudaErrorLaunchOutOfResources
  kKernel,        // a kernel ends with cudaErrorIllegalAddress, which is sticky
  kCopy,          // a copy ends with cudaErrorECCUncorrectable, which is sticky
};

// The `calls`-th call of the kind from here on, 1 the next one, meets the fault. One at a time.
void FailCall(Fault fault, int64_t calls);

// Device memory that is allocated now, of all devices.
size_t AllocatedBytes();

}  // namespace nightshift::cuda_emulator
