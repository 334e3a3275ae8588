#include "tests/support/cuda_emulator/device_memory.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include <sys/mman.h>
#include <unistd.h>

#include "kernels/base/check.h"
#include "kernels/tensor_view.h"

namespace nightshift::cuda_emulator {
namespace {

constexpr size_t kPageBytes = 4096;
// As floats of any width these are NaNs: whoever reads what nobody wrote sees it.
constexpr int kJunk = 0xff;
// Of an allocation; all of a workspace of 30 MiB would cost each test 10 ms.
constexpr size_t kMostJunkBytes = size_t{4} << 20;

thread_local const char* running_work = nullptr;

// What the signal handler may read: allocations as plain atomics. A slot with first 0 is free.
struct TrapRange {
  std::atomic<uintptr_t> first{0};
  std::atomic<uintptr_t> end{0};
};
constexpr size_t kMaxAllocations = 256;

std::array<TrapRange, kMaxAllocations>& TrapRanges() {
  static std::array<TrapRange, kMaxAllocations> ranges;
  return ranges;
}

struct sigaction& PreviousAction() {
  static struct sigaction action = {};
  return action;
}

// Only what is safe in a signal handler.
void WriteText(const char* text) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, std::strlen(text));
}

void WriteHex(uintptr_t value) {
  char text[19] = "0x0000000000000000";
  for (size_t i = 0; i < 16; ++i) {
    text[17 - i] = "0123456789abcdef"[value >> (4 * i) & 15U];
  }
  WriteText(text);
}

void OnFault(int signal, siginfo_t* info, void* /*context*/) {
  const uintptr_t address = reinterpret_cast<uintptr_t>(info->si_addr);
  for (const TrapRange& range : TrapRanges()) {
    if (address < range.first || address >= range.end) {
      continue;
    }
    WriteText("cuda emulator: ");
    WriteText(running_work == nullptr ? "the host" : running_work);
    WriteText(" touches device memory at ");
    WriteHex(address);
    WriteText(", inside or right behind the allocation at ");
    WriteHex(range.first);
    WriteText(running_work == nullptr ? ": only kernels and copies may\n"
                                      : ": of another device or past the end\n");
    break;
  }
  sigaction(signal, &PreviousAction(), nullptr);  // which the instruction meets when it runs again
}

void CatchFaults() {
  static const bool caught = [] {
    struct sigaction action = {};
    action.sa_sigaction = OnFault;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGSEGV, &action, &PreviousAction()) == 0;
  }();
  CHECK(caught);
}

void AddTrap(uintptr_t first, size_t bytes) {
  for (TrapRange& range : TrapRanges()) {
    if (range.first == 0) {
      range.end = first + bytes;
      range.first = first;
      return;
    }
  }
  CHECK(false);  // more than kMaxAllocations
}

void RemoveTrap(uintptr_t first) {
  for (TrapRange& range : TrapRanges()) {
    if (range.first == first) {
      range.first = 0;
    }
  }
}

// The last range that starts at `address` or before.
template <typename Map>
auto RangeAt(Map& ranges, const void* address) {
  auto next = ranges.upper_bound(reinterpret_cast<uintptr_t>(address));
  return next == ranges.begin() ? ranges.end() : std::prev(next);
}

}  // namespace

void SetRunning(const char* name) {
  running_work = name;
}

void* DeviceMemory::Allocate(int device, size_t bytes) {
  CatchFaults();
  const auto mapped_bytes = static_cast<size_t>(
      RoundUp(static_cast<int64_t>(bytes), static_cast<int64_t>(kPageBytes)));
  const int file = memfd_create("device memory", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, static_cast<off_t>(mapped_bytes)) != 0) {
    return nullptr;
  }
  void* copies = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  // One page behind belongs to it and to nobody.
  void* kernels = mmap(nullptr, mapped_bytes + kPageBytes, PROT_NONE, MAP_SHARED, file, 0);
  close(file);
  if (copies == MAP_FAILED || kernels == MAP_FAILED) {
    return nullptr;
  }
  std::memset(copies, kJunk, std::min(mapped_bytes, kMostJunkBytes));
  AddTrap(reinterpret_cast<uintptr_t>(kernels), mapped_bytes + kPageBytes);
  allocations_[reinterpret_cast<uintptr_t>(kernels)] = {
      device, bytes, mapped_bytes, static_cast<std::byte*>(copies)};
  if (running_kernels_[device] > 0) {
    Protect(device, PROT_READ | PROT_WRITE);
  }
  return kernels;
}

bool DeviceMemory::Free(void* address) {
  const auto found = allocations_.find(reinterpret_cast<uintptr_t>(address));
  if (found == allocations_.end()) {
    return false;
  }
  RemoveTrap(found->first);
  munmap(found->second.copies, found->second.mapped_bytes);
  munmap(address, found->second.mapped_bytes + kPageBytes);
  allocations_.erase(found);
  return true;
}

size_t DeviceMemory::allocated_bytes(int device) const {
  size_t bytes = 0;
  for (const auto& [address, allocation] : allocations_) {
    bytes += allocation.device == device ? allocation.bytes : 0;
  }
  return bytes;
}

std::byte* DeviceMemory::ForCopies(const void* address, size_t bytes) const {
  const auto found = RangeAt(allocations_, address);
  if (found == allocations_.end()) {
    return nullptr;
  }
  const size_t offset = reinterpret_cast<uintptr_t>(address) - found->first;
  const bool is_inside = offset <= found->second.bytes && bytes <= found->second.bytes - offset;
  return is_inside ? found->second.copies + offset : nullptr;
}

void DeviceMemory::BeginKernel(int device) {
  if (running_kernels_[device]++ == 0) {
    Protect(device, PROT_READ | PROT_WRITE);
  }
}

void DeviceMemory::EndKernel(int device) {
  if (--running_kernels_[device] == 0) {
    Protect(device, PROT_NONE);
  }
}

void DeviceMemory::Protect(int device, int protection) {
  for (const auto& [address, allocation] : allocations_) {
    if (allocation.device == device) {
      CHECK_EQ(mprotect(reinterpret_cast<void*>(address), allocation.mapped_bytes, protection), 0);
    }
  }
}

bool PinnedMemory::Pin(const void* address, size_t bytes) {
  const uintptr_t first = reinterpret_cast<uintptr_t>(address);
  const auto next = ranges_.lower_bound(first);
  const auto before = RangeAt(ranges_, address);
  if ((next != ranges_.end() && next->first < first + bytes) ||
      (before != ranges_.end() && before->first + before->second > first)) {
    return false;
  }
  ranges_[first] = bytes;
  return true;
}

bool PinnedMemory::Unpin(const void* address) {
  return ranges_.erase(reinterpret_cast<uintptr_t>(address)) == 1;
}

bool PinnedMemory::Has(const void* address, size_t bytes) const {
  const auto found = RangeAt(ranges_, address);
  return found != ranges_.end() &&
         reinterpret_cast<uintptr_t>(address) + bytes <= found->first + found->second;
}

}  // namespace nightshift::cuda_emulator
