// Device: where ops run and whose memory they read. One of the two classes that differ by device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/arena.h"
#include "kernels/base/clock.h"
#include "kernels/base/worker_pool.h"
#include "kernels/ops.h"

namespace nightshift {

class Device {
 public:
  virtual ~Device() = default;
  // The device's ops for one compute type, on device memory. The reference lives as long as the
  // device.
  virtual Ops& ops(ComputeType compute_type) = 0;
  // Ops on host memory by the host's threads, for attention over keys and values that lie there.
  // Another object than `ops`, so that both may be used at the same time, each by one thread.
  virtual Ops& host_ops(ComputeType compute_type) = 0;
  // True when the device computes on host memory: nothing is copied.
  virtual bool unified_memory() const = 0;
  // Copy between host and device memory; `from` and `to` have the same size and do not overlap.
  // Return when the bytes are there. Each may be called from one thread at a time, both at the same
  // time and beside ops. Errors: INTERNAL.
  virtual absl::Status Upload(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  virtual absl::Status Download(std::span<const std::byte> from, std::span<std::byte> to) = 0;
  // Returns when the ops that were called before have ended: ops may return earlier. A fault of
  // the device is the answer of this and of copies from then on. Errors: INTERNAL naming the step.
  virtual absl::Status Wait() { return absl::OkStatus(); }
  // Where device memory is to be taken from when the host cannot read and write it; else null, and
  // any memory of the host will do.
  virtual Arena* arena() { return nullptr; }
  // Says that copies of this host memory will come, and that they have ended. Advice: without it
  // copies are slower. Must not overlap memory that is pinned.
  virtual void Pin(std::span<std::byte> /*memory*/) {}
  virtual void Unpin(std::span<std::byte> /*memory*/) {}
  // Turns a shard of matmul weights, just uploaded by this thread, into what this device's ops read.
  // Errors: INTERNAL.
  virtual absl::Status UnpackShard(const WeightShardView& /*shard*/) { return absl::OkStatus(); }
  // The host's threads, for work between calls of ops.
  virtual WorkerPool& workers() = 0;
  // Words for people: "cpu, 2 threads, AVX3".
  virtual std::string description() const = 0;
};

// Creates the CPU device with its own worker pool. num_threads 0: one a core that this process may
// use. Errors: INVALID_ARGUMENT for a negative count.
absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int num_threads);

// A device with memory of its own, made of the host's: what the three-tier path needs to run on any
// machine, at the rates of any machine that is slower.
struct DiscreteCpuOptions {
  int num_threads = 0;  // as above; shared by ops and host_ops
  // Rates of copies and of the multiply-adds (two operations each) of matmul and attention, by
  // pacing: time that is waited out is left to the host's work. 0: as fast as this machine is.
  double upload_bytes_per_s = 0.0;
  double download_bytes_per_s = 0.0;
  double flops_per_s = 0.0;
};

// The clock, which must outlive the device, is what pacing goes by.
// Errors: INVALID_ARGUMENT naming a count or rate that is negative or not finite.
absl::StatusOr<std::unique_ptr<Device>> CreateDiscreteCpuDevice(const DiscreteCpuOptions& options,
                                                                const Clock& clock);

struct CudaOptions {
  int gpu = 0;  // as CUDA counts them
  ComputeType compute_type = ComputeType::kBF16;  // of the only `ops` that it has
  // Device memory for the arena, reserved at once; workspaces of about 70 MiB come on top.
  int64_t memory_bytes = 0;
  int num_threads = 0;  // of host_ops and workers, as above
};

// Creates the device of a GPU; host_ops and workers are the CPU's.
// Errors: FAILED_PRECONDITION naming what is not there (CUDA in this build, driver, the GPU, a
// compute capability of 7.5, cuBLAS, the compute type), RESOURCE_EXHAUSTED (device memory),
// INVALID_ARGUMENT.
absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaOptions& options);

// Bytes of memory of a GPU that a device could be made of, as far as can be told without taking any
// of it. Errors: FAILED_PRECONDITION as above.
absl::StatusOr<int64_t> GpuMemoryBytes(int gpu);

}  // namespace nightshift
