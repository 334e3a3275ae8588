// Runtime: the state behind the stand-in calls. Streams are threads, one lock guards all.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "kernels/base/mutex.h"
#include "tests/support/cuda_emulator/cuda_runtime.h"
#include "tests/support/cuda_emulator/device_memory.h"
#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/cuda_emulator/race_checker.h"
#include "tests/support/cuda_emulator/stream_queue.h"

namespace nightshift::cuda_emulator {

// Ends the process: what a correct program never does.
[[noreturn]] void Misuse(const std::string& what);

// One recording of an event.
struct Recording {
  bool is_over = false;
  VectorClock before;  // what is over with it
};

struct StreamItem {
  const char* name = "";
  bool is_kernel = false;
  std::function<void()> run = nullptr;
  cudaError_t fault = cudaSuccess;  // how it ends instead
  // Shared by the event and all works that wait for this recording of it.
  std::shared_ptr<Recording> waits_for = nullptr;
  std::shared_ptr<Recording> records = nullptr;
};

struct Event {
  std::shared_ptr<Recording> recording;  // null before the first
};

// Fields are guarded by the runtime's lock.
struct Stream {
  int device = 0;
  uint64_t id = 0;
  uint64_t num_issued = 0;
  uint64_t num_ended = 0;
  bool is_closed = false;
  VectorClock before;  // of its next work
  std::deque<StreamItem> items;
  std::thread thread;
};

// Never destroyed, as the calls may come at any time. Thread-safe.
class Runtime {
 public:
  static Runtime& Get();

  void SetMachine(const Machine& machine);
  Machine machine();
  void FailCall(Fault fault, int64_t calls);
  size_t allocated_bytes(int device);

  cudaError_t Allocate(int device, void** address, size_t bytes);
  cudaError_t Free(void* address);
  cudaError_t Pin(void* address, size_t bytes);
  cudaError_t Unpin(void* address);

  Stream* CreateStream(int device);
  void DestroyStream(Stream* stream);
  Event* CreateEvent();
  void DestroyEvent(Event* event);
  cudaError_t Record(Event* event, Stream* stream);
  cudaError_t WaitOnStream(Stream* stream, Event* event);
  cudaError_t SynchronizeEvent(Event* event);
  cudaError_t SynchronizeStream(Stream* stream);

  cudaError_t Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, Stream* stream);
  cudaError_t Fill(void* address, int value, size_t bytes, Stream* stream);
  cudaError_t Launch(Stream* stream, const char* name, std::span<const Access> accesses,
                     std::function<void()> body);
  cudaError_t sticky_error(int device);

 private:
  void CheckKnown(const Stream* stream) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool MeetsFault(Fault fault) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  cudaError_t Issue(Stream* stream, StreamItem item, std::span<const Access> accesses)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::byte* DeviceRange(const char* call, const void* address, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  const std::byte* HostRange(const char* call, const void* address, size_t bytes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void HostKnows(const VectorClock& over) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // What the stream's thread does until it is closed and empty.
  void Work(Stream& stream);
  void RunItem(Stream& stream, const StreamItem& item);

  Mutex mutex_;
  CondVar changed_;
  Machine machine_ ABSL_GUARDED_BY(mutex_);
  std::optional<Fault> fault_ ABSL_GUARDED_BY(mutex_);
  int64_t calls_to_fault_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<int, cudaError_t> sticky_errors_ ABSL_GUARDED_BY(mutex_);  // by device
  DeviceMemory memory_ ABSL_GUARDED_BY(mutex_);
  PinnedMemory pinned_ ABSL_GUARDED_BY(mutex_);
  RaceChecker races_ ABSL_GUARDED_BY(mutex_);
  VectorClock host_ ABSL_GUARDED_BY(mutex_);  // what the host has waited for
  uint64_t num_streams_ ABSL_GUARDED_BY(mutex_) = 0;  // that ever were
  int64_t num_waiters_ ABSL_GUARDED_BY(mutex_) = 0;
  std::map<const Stream*, std::unique_ptr<Stream>> streams_ ABSL_GUARDED_BY(mutex_);
  std::map<const Event*, std::unique_ptr<Event>> events_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace nightshift::cuda_emulator
