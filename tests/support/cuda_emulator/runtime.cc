#include "tests/support/cuda_emulator/runtime.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/thread_name.h"

namespace nightshift::cuda_emulator {
namespace {

std::string AddressText(const void* address) {
  return absl::StrCat("0x", absl::Hex(reinterpret_cast<uintptr_t>(address)));
}

}  // namespace

void Misuse(const std::string& what) {
  std::fprintf(stderr, "cuda emulator: %s\n", what.c_str());
  std::abort();
}

Runtime& Runtime::Get() {
  static Runtime& runtime = *std::make_unique<Runtime>().release();
  return runtime;
}

void Runtime::SetMachine(const Machine& machine) {
  const MutexLock lock(mutex_);
  if (!streams_.empty() || !events_.empty()) {
    Misuse(absl::StrCat("another machine is set up while ", streams_.size(), " streams and ",
                        events_.size(), " events of this one are left"));
  }
  machine_ = machine;
  fault_.reset();
  sticky_errors_.clear();
  races_.ForgetAll();
  host_ = {};
}

Machine Runtime::machine() {
  const MutexLock lock(mutex_);
  return machine_;
}

void Runtime::FailCall(Fault fault, int64_t calls) {
  CHECK_GE(calls, 1);
  const MutexLock lock(mutex_);
  fault_ = fault;
  calls_to_fault_ = calls;
}

size_t Runtime::allocated_bytes(int device) {
  const MutexLock lock(mutex_);
  return memory_.allocated_bytes(device);
}

cudaError_t Runtime::sticky_error(int device) {
  const MutexLock lock(mutex_);
  const auto found = sticky_errors_.find(device);
  return found == sticky_errors_.end() ? cudaSuccess : found->second;
}

bool Runtime::MeetsFault(Fault fault) {
  if (fault_ != fault || --calls_to_fault_ > 0) {
    return false;
  }
  fault_.reset();
  return true;
}

cudaError_t Runtime::Allocate(int device, void** address, size_t bytes) {
  const MutexLock lock(mutex_);
  if (bytes == 0) {
    Misuse("cudaMalloc of 0 bytes");
  }
  const size_t used_bytes = memory_.allocated_bytes(device);
  if (MeetsFault(Fault::kAllocation) || bytes > machine_.device_bytes - used_bytes) {
    return cudaErrorMemoryAllocation;
  }
  *address = memory_.Allocate(device, bytes);
  return *address == nullptr ? cudaErrorMemoryAllocation : cudaSuccess;
}

cudaError_t Runtime::Free(void* address) {
  const MutexLock lock(mutex_);
  // As the real call does: what uses the memory ends first.
  const auto is_busy = [](const auto& entry) {
    return entry.second->num_ended < entry.second->num_issued;
  };
  ++num_waiters_;
  changed_.NotifyAll();
  while (std::any_of(streams_.begin(), streams_.end(), is_busy)) {
    changed_.Wait(mutex_);
  }
  --num_waiters_;
  for (const auto& [key, stream] : streams_) {
    host_.Set(stream->id, stream->num_issued);
  }
  races_.ForgetBefore(host_);
  if (address != nullptr && !memory_.Free(address)) {
    Misuse(absl::StrCat("cudaFree of ", AddressText(address), ", which cudaMalloc did not return"));
  }
  return cudaSuccess;
}

cudaError_t Runtime::Pin(void* address, size_t bytes) {
  const MutexLock lock(mutex_);
  if (MeetsFault(Fault::kRegistration)) {
    return cudaErrorMemoryAllocation;
  }
  return pinned_.Pin(address, bytes) ? cudaSuccess : cudaErrorHostMemoryAlreadyRegistered;
}

cudaError_t Runtime::Unpin(void* address) {
  const MutexLock lock(mutex_);
  return pinned_.Unpin(address) ? cudaSuccess : cudaErrorHostMemoryNotRegistered;
}

Stream* Runtime::CreateStream(int device) {
  const MutexLock lock(mutex_);
  auto stream = std::make_unique<Stream>();
  stream->device = device;
  stream->id = ++num_streams_;
  Stream* const added = stream.get();
  added->thread = std::thread([this, added] { Work(*added); });
  streams_[added] = std::move(stream);
  return added;
}

void Runtime::DestroyStream(Stream* stream) {
  {
    const MutexLock lock(mutex_);
    CheckKnown(stream);
    stream->is_closed = true;
    ++num_waiters_;  // its last works may wait for those of others
    changed_.NotifyAll();
  }
  stream->thread.join();
  const MutexLock lock(mutex_);
  --num_waiters_;
  streams_.erase(stream);
}

Event* Runtime::CreateEvent() {
  const MutexLock lock(mutex_);
  auto event = std::make_unique<Event>();
  Event* const added = event.get();
  events_[added] = std::move(event);
  return added;
}

void Runtime::DestroyEvent(Event* event) {
  const MutexLock lock(mutex_);
  if (events_.erase(event) != 1) {
    Misuse("an event that does not exist is destroyed");
  }
}

void Runtime::CheckKnown(const Stream* stream) {
  if (!streams_.contains(stream)) {
    Misuse(stream == nullptr ? "work for the default stream, which orders itself with all others"
                             : "work for a stream that does not exist");
  }
}

cudaError_t Runtime::Issue(Stream* stream, StreamItem item, std::span<const Access> accesses) {
  CheckKnown(stream);
  const auto sticky = sticky_errors_.find(stream->device);
  if (sticky != sticky_errors_.end()) {
    return sticky->second;
  }
  stream->before.Join(host_);
  if (item.waits_for != nullptr) {
    stream->before.Join(item.waits_for->before);
  }
  const std::optional<std::string> race =
      races_.Add({item.name, stream->id, ++stream->num_issued}, stream->before, accesses);
  if (race.has_value()) {
    Misuse(*race);
  }
  stream->before.Set(stream->id, stream->num_issued);
  if (item.records != nullptr) {
    item.records->before = stream->before;
  }
  stream->items.push_back(std::move(item));
  changed_.NotifyAll();
  return cudaSuccess;
}

cudaError_t Runtime::Record(Event* event, Stream* stream) {
  const MutexLock lock(mutex_);
  const auto recording = std::make_shared<Recording>();
  const cudaError_t issued = Issue(stream, {.name = "cudaEventRecord", .records = recording}, {});
  if (issued == cudaSuccess) {
    event->recording = recording;
  }
  return issued;
}

cudaError_t Runtime::WaitOnStream(Stream* stream, Event* event) {
  const MutexLock lock(mutex_);
  if (event->recording == nullptr) {
    return cudaSuccess;
  }
  return Issue(stream, {.name = "cudaStreamWaitEvent", .waits_for = event->recording}, {});
}

void Runtime::HostKnows(const VectorClock& over) {
  host_.Join(over);
  races_.ForgetBefore(host_);
}

cudaError_t Runtime::SynchronizeEvent(Event* event) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Recording> recording = event->recording;
  if (recording == nullptr) {
    return cudaSuccess;
  }
  ++num_waiters_;
  changed_.NotifyAll();
  while (!recording->is_over) {
    changed_.Wait(mutex_);
  }
  --num_waiters_;
  HostKnows(recording->before);
  return cudaSuccess;
}

cudaError_t Runtime::SynchronizeStream(Stream* stream) {
  const MutexLock lock(mutex_);
  CheckKnown(stream);
  const uint64_t num_issued = stream->num_issued;
  VectorClock over = stream->before;
  ++num_waiters_;
  changed_.NotifyAll();
  while (stream->num_ended < num_issued) {
    changed_.Wait(mutex_);
  }
  --num_waiters_;
  HostKnows(over);
  return cudaSuccess;
}

std::byte* Runtime::DeviceRange(const char* call, const void* address, size_t bytes) {
  std::byte* const found = memory_.ForCopies(address, bytes);
  if (found == nullptr) {
    Misuse(absl::StrCat(call, ": ", bytes, " bytes at ", AddressText(address),
                        " are not inside one allocation of device memory"));
  }
  return found;
}

const std::byte* Runtime::HostRange(const char* call, const void* address, size_t bytes) {
  if (!pinned_.Has(address, bytes)) {
    Misuse(absl::StrCat(call, ": ", bytes, " bytes of the host at ", AddressText(address),
                        " are not pinned, so that the copy would not be asynchronous"));
  }
  return static_cast<const std::byte*>(address);
}

cudaError_t Runtime::Copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                          Stream* stream) {
  const MutexLock lock(mutex_);
  std::vector<Access> accesses;
  const char* const name = kind == cudaMemcpyHostToDevice   ? "copy to the device"
                           : kind == cudaMemcpyDeviceToHost ? "copy from the device"
                                                            : "copy on the device";
  const std::byte* source = nullptr;
  std::byte* target = nullptr;
  if (kind == cudaMemcpyHostToDevice) {
    source = HostRange(name, from, bytes);
  } else {
    source = DeviceRange(name, from, bytes);
    accesses.push_back({.address = from, .bytes = bytes, .writes = false});
  }
  if (kind == cudaMemcpyDeviceToHost) {
    HostRange(name, to, bytes);
    target = static_cast<std::byte*>(to);
  } else {
    target = DeviceRange(name, to, bytes);
    accesses.push_back({.address = to, .bytes = bytes, .writes = true});
  }
  const cudaError_t fault =
      MeetsFault(Fault::kCopy) ? cudaErrorECCUncorrectable : cudaSuccess;
  return Issue(stream,
               {.name = name,
                .run = [=] { std::memcpy(target, source, bytes); },
                .fault = fault},
               accesses);
}

cudaError_t Runtime::Fill(void* address, int value, size_t bytes, Stream* stream) {
  const MutexLock lock(mutex_);
  std::byte* const target = DeviceRange("cudaMemsetAsync", address, bytes);
  const Access access = {.address = address, .bytes = bytes, .writes = true};
  return Issue(
      stream,
      {.name = "cudaMemsetAsync", .run = [=] { std::memset(target, value, bytes); }},
      {&access, 1});
}

cudaError_t Runtime::Launch(Stream* stream, const char* name, std::span<const Access> accesses,
                            std::function<void()> body) {
  const MutexLock lock(mutex_);
  for (const Access& access : accesses) {
    DeviceRange(name, access.address, access.bytes);
  }
  if (MeetsFault(Fault::kLaunch)) {
    return cudaErrorLaunchOutOfResources;
  }
  const cudaError_t fault = MeetsFault(Fault::kKernel) ? cudaErrorIllegalAddress : cudaSuccess;
  return Issue(stream,
               {.name = name, .is_kernel = true, .run = std::move(body), .fault = fault},
               accesses);
}

void Runtime::Work(Stream& stream) {
  NameThread("cuda-stream");
  while (true) {
    StreamItem item;
    {
      const MutexLock lock(mutex_);
      while (!stream.is_closed &&
             (stream.items.empty() || (machine_.runs_late && num_waiters_ == 0))) {
        changed_.Wait(mutex_);
      }
      if (stream.items.empty()) {
        return;
      }
      item = std::move(stream.items.front());
      stream.items.pop_front();
      while (item.waits_for != nullptr && !item.waits_for->is_over) {
        changed_.Wait(mutex_);
      }
    }
    RunItem(stream, item);
    const MutexLock lock(mutex_);
    if (item.records != nullptr) {
      item.records->is_over = true;
    }
    ++stream.num_ended;
    changed_.NotifyAll();
  }
}

void Runtime::RunItem(Stream& stream, const StreamItem& item) {
  {
    const MutexLock lock(mutex_);
    if (sticky_errors_.contains(stream.device)) {
      return;
    }
    if (item.fault != cudaSuccess) {
      sticky_errors_[stream.device] = item.fault;
      return;
    }
    if (item.is_kernel) {
      memory_.BeginKernel(stream.device);
    }
  }
  if (item.run != nullptr) {
    SetRunning(item.name);
    item.run();
    SetRunning(nullptr);
  }
  if (item.is_kernel) {
    const MutexLock lock(mutex_);
    memory_.EndKernel(stream.device);
  }
}

}  // namespace nightshift::cuda_emulator
