#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#include "kernels/arena.h"
#include "kernels/base/check.h"
#include "kernels/base/mutex.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/copy_lane.h"
#include "kernels/cuda/cublas_library.h"
#include "kernels/cuda/cuda_ops.h"
#include "kernels/cuda/float_matmul.h"
#include "kernels/cuda/gpu.h"
#include "kernels/cuda/pinned_ranges.h"
#include "kernels/cuda/resources.h"
#include "kernels/cuda/shard_unpacker.h"
#include "kernels/device.h"

namespace nightshift {
namespace cuda {
namespace {

// The arena begins at a page.
constexpr int64_t kArenaAlignment = 4096;
// cuBLAS multiplies bf16 from here on.
constexpr int kBf16Capability = 80;

// A GPU with its streams, one reservation of its memory, and a CPU device for what the host does.
class CudaDevice : public Device {
 public:
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Create(const CudaOptions& options);
  ~CudaDevice() override;

  Ops& ops(ComputeType compute_type) override;
  Ops& host_ops(ComputeType compute_type) override { return host_->host_ops(compute_type); }
  bool unified_memory() const override { return false; }
  absl::Status Upload(std::span<const std::byte> from, std::span<std::byte> to) override;
  absl::Status Download(std::span<const std::byte> from, std::span<std::byte> to) override;
  absl::Status Wait() override;
  Arena* arena() override { return arena_.get(); }
  void Pin(std::span<std::byte> memory) override;
  void Unpin(std::span<std::byte> memory) override;
  absl::Status UnpackShard(const WeightShardView& shard) override;
  WorkerPool& workers() override { return host_->workers(); }
  std::string description() const override;

 private:
  CudaDevice(const CudaOptions& options, const cudaDeviceProp& gpu)
      : number_(options.gpu), compute_type_(options.compute_type), gpu_(gpu) {}

  absl::Status CreateParts(const CudaOptions& options);
  absl::Status CreateArena(int64_t bytes);
  // Makes the device the calling thread's.
  void Use() const { cudaSetDevice(number_); }
  // What was the first fault is the answer from then on.
  absl::Status Keep(absl::Status status);

  const int number_;
  const ComputeType compute_type_;
  const cudaDeviceProp gpu_;
  std::unique_ptr<Device> host_;
  PinnedRanges pinned_;
  DeviceMemory arena_memory_;
  std::unique_ptr<FloatMatMul> matmul_;
  std::unique_ptr<ShardUnpacker> unpacker_;
  std::unique_ptr<CopyLane> upload_;
  std::unique_ptr<CopyLane> download_;
  EventOwner computed_;
  StreamOwner compute_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<CudaOps> ops_;
  Mutex mutex_;
  absl::Status fault_ ABSL_GUARDED_BY(mutex_);
};

absl::StatusOr<std::unique_ptr<CudaDevice>> CudaDevice::Create(const CudaOptions& options) {
  ASSIGN_OR_RETURN(const cudaDeviceProp gpu, FindGpu(options.gpu));
  std::unique_ptr<CudaDevice> device(new CudaDevice(options, gpu));
  device->Use();
  if (const absl::Status created = device->CreateParts(options); !created.ok()) {
    return absl::Status(created.code(),
                        absl::StrCat("create the device of GPU ", options.gpu, ", ",
                                     DescribeGpu(gpu), ": ", created.message()));
  }
  return device;
}

absl::Status CudaDevice::CreateParts(const CudaOptions& options) {
  ASSIGN_OR_RETURN(host_, CreateCpuDevice(options.num_threads));
  ASSIGN_OR_RETURN(matmul_, FloatMatMul::Create(gpu_.major * 10 + gpu_.minor >= kBf16Capability));
  ASSIGN_OR_RETURN(ShardUnpacker unpacker, ShardUnpacker::Create());
  unpacker_ = std::make_unique<ShardUnpacker>(std::move(unpacker));
  for (std::unique_ptr<CopyLane>* lane : {&upload_, &download_}) {
    ASSIGN_OR_RETURN(CopyLane made, CopyLane::Create());
    *lane = std::make_unique<CopyLane>(std::move(made));
  }
  ASSIGN_OR_RETURN(computed_, CreateEvent());
  ASSIGN_OR_RETURN(compute_, CreateStream());
  ASSIGN_OR_RETURN(ops_, CudaOps::Create(compute_type_, compute_.get(), *matmul_));
  return CreateArena(options.memory_bytes);
}

absl::Status CudaDevice::CreateArena(int64_t bytes) {
  ASSIGN_OR_RETURN(arena_memory_, AllocateDeviceMemory(bytes + kArenaAlignment, "the engine"));
  const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(arena_memory_.get()));
  std::byte* const first = arena_memory_.get() + (RoundUp(address, kArenaAlignment) - address);
  arena_ = std::make_unique<Arena>(
      std::span(first, static_cast<size_t>(bytes)), [this](std::span<std::byte> part) {
        Use();
        RETURN_IF_ERROR(CudaStatus(
            cudaMemsetAsync(part.data(), 0, part.size(), upload_->stream()), "clear memory"));
        return Keep(upload_->Wait("clear memory"));
      });
  return absl::OkStatus();
}

CudaDevice::~CudaDevice() {
  Use();
}

Ops& CudaDevice::ops(ComputeType compute_type) {
  CHECK(compute_type == compute_type_);
  return *ops_;
}

absl::Status CudaDevice::Keep(absl::Status status) {
  const MutexLock lock(mutex_);
  if (fault_.ok() && !status.ok()) {
    fault_ = absl::Status(status.code(), absl::StrCat("GPU ", number_, ": ", status.message()));
  }
  return fault_;
}

absl::Status CudaDevice::Upload(std::span<const std::byte> from, std::span<std::byte> to) {
  Use();
  return Keep(upload_->Upload(from, to, pinned_.Has(from)));
}

absl::Status CudaDevice::Download(std::span<const std::byte> from, std::span<std::byte> to) {
  Use();
  return Keep(download_->Download(from, to, pinned_.Has(to)));
}

absl::Status CudaDevice::Wait() {
  Use();
  RETURN_IF_ERROR(Keep(ops_->status()));
  return Keep(WaitForStream(compute_.get(), computed_.get(), "ops"));
}

void CudaDevice::Pin(std::span<std::byte> memory) {
  Use();
  pinned_.Pin(memory);
}

void CudaDevice::Unpin(std::span<std::byte> memory) {
  Use();
  pinned_.Unpin(memory);
}

absl::Status CudaDevice::UnpackShard(const WeightShardView& shard) {
  Use();
  return Keep(unpacker_->Unpack(shard, *upload_));
}

std::string CudaDevice::description() const {
  return absl::StrCat("cuda ", number_, ", ", DescribeGpu(gpu_), "; beside it ",
                      host_->description());
}

}  // namespace
}  // namespace cuda

absl::StatusOr<std::unique_ptr<Device>> CreateCudaDevice(const CudaOptions& options) {
  if (options.memory_bytes <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("create the device of GPU ", options.gpu, " with ", options.memory_bytes,
                     " bytes of memory: the count must be positive"));
  }
  return cuda::CudaDevice::Create(options);
}

absl::StatusOr<int64_t> GpuMemoryBytes(int gpu) {
  ASSIGN_OR_RETURN(const cudaDeviceProp found, cuda::FindGpu(gpu));
  RETURN_IF_ERROR(cuda::LoadCublasLibrary().status());
  return static_cast<int64_t>(found.totalGlobalMem);
}

}  // namespace nightshift
