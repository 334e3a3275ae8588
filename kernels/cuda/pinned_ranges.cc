#include "kernels/cuda/pinned_ranges.h"

#include <iterator>

#include <cuda_runtime.h>

#include "kernels/base/log.h"

namespace nightshift::cuda {
namespace {

uintptr_t AddressOf(std::span<const std::byte> memory) {
  return reinterpret_cast<uintptr_t>(memory.data());
}

}  // namespace

PinnedRanges::~PinnedRanges() {
  const MutexLock lock(mutex_);
  for (const auto& [address, bytes] : bytes_by_address_) {
    cudaHostUnregister(reinterpret_cast<void*>(address));
  }
}

void PinnedRanges::Pin(std::span<std::byte> memory) {
  const cudaError_t error =
      cudaHostRegister(memory.data(), memory.size(), cudaHostRegisterDefault);
  if (error != cudaSuccess) {
    cudaGetLastError();
    LOG(WARNING) << "host memory is not pinned, copies of it are slower bytes=" << memory.size()
                 << " error=" << cudaGetErrorName(error);
    return;
  }
  const MutexLock lock(mutex_);
  bytes_by_address_[AddressOf(memory)] = memory.size();
}

void PinnedRanges::Unpin(std::span<std::byte> memory) {
  {
    const MutexLock lock(mutex_);
    if (bytes_by_address_.erase(AddressOf(memory)) == 0) return;
  }
  cudaHostUnregister(memory.data());
}

bool PinnedRanges::Has(std::span<const std::byte> memory) const {
  const MutexLock lock(mutex_);
  const auto next = bytes_by_address_.upper_bound(AddressOf(memory));
  if (next == bytes_by_address_.begin()) return false;
  const auto& [address, bytes] = *std::prev(next);
  return AddressOf(memory) + memory.size() <= address + bytes;
}

}  // namespace nightshift::cuda
