// DeviceMemory: addresses that the host may not touch, and the host's memory that is pinned.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace nightshift::cuda_emulator {

// Each allocation is mapped twice: at the address that the program knows, which is open only while
// a kernel of its device runs, and at one that copies use. A touch of the first from elsewhere ends
// the process with the address and the allocation. New memory holds no zeros, as far as that is
// cheap. Used under one lock.
class DeviceMemory {
 public:
  // Returns null if the host has no room.
  void* Allocate(int device, size_t bytes);
  // False if nothing was allocated at this address.
  bool Free(void* address);
  size_t allocated_bytes(int device) const;

  // Where copies find [address, address + bytes); null if that is not inside one allocation.
  std::byte* ForCopies(const void* address, size_t bytes) const;
  // Opens and closes the device's memory to kernels; they nest.
  void BeginKernel(int device);
  void EndKernel(int device);

 private:
  struct Allocation {
    int device = 0;
    size_t bytes = 0;         // asked for
    size_t mapped_bytes = 0;  // whole pages, without the guard behind
    std::byte* copies = nullptr;
  };
  void Protect(int device, int protection);

  std::map<uintptr_t, Allocation> allocations_;
  std::map<int, int> running_kernels_;
};

// Ranges of host memory that copies may use. Used under one lock.
class PinnedMemory {
 public:
  // False if a part of it is pinned.
  bool Pin(const void* address, size_t bytes);
  bool Unpin(const void* address);
  bool Has(const void* address, size_t bytes) const;

 private:
  std::map<uintptr_t, size_t> ranges_;
};

// Names what the calling thread runs, for the message of a trap. `name` is kept by address.
void SetRunning(const char* name);

}  // namespace nightshift::cuda_emulator
