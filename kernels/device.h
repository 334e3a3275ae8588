// Device: where ops run and whose memory they read. One of the two classes that differ by device.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/base/worker_pool.h"
#include "kernels/ops.h"

namespace nightshift {

class Device {
 public:
  virtual ~Device() = default;
  // The device's ops for one compute type. The reference lives as long as the device.
  virtual Ops& ops(ComputeType compute_type) = 0;
  // True when the device computes on host memory: nothing is copied.
  virtual bool unified_memory() const = 0;
  // The host's threads, for work between calls of ops.
  virtual WorkerPool& workers() = 0;
  // Words for people: "cpu, 2 threads, AVX3".
  virtual std::string description() const = 0;
};

// Creates the CPU device with its own worker pool. num_threads 0: one a core that this process may
// use. Errors: INVALID_ARGUMENT for a negative count.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int num_threads);

}  // namespace nightshift
