// The stand-in calls of cuda_runtime.h: each with the thread's device and last error.
#include <cstdio>
#include <utility>

#include "tests/support/cuda_emulator/cuda_runtime.h"
#include "tests/support/cuda_emulator/machine.h"
#include "tests/support/cuda_emulator/runtime.h"
#include "tests/support/cuda_emulator/stream_queue.h"

using nightshift::cuda_emulator::Machine;
using nightshift::cuda_emulator::Misuse;
using nightshift::cuda_emulator::Runtime;

namespace {

thread_local int current_device = 0;
thread_local cudaError_t last_error = cudaSuccess;

cudaError_t Keep(cudaError_t error) {
  if (error != cudaSuccess) {
    last_error = error;
  }
  return error;
}

// An error that is sticky on the device is the answer of every call.
cudaError_t OrSticky(cudaError_t error) {
  const cudaError_t sticky = Runtime::Get().sticky_error(current_device);
  return Keep(sticky == cudaSuccess ? error : sticky);
}

cudaError_t CheckMachine(const Machine& machine) {
  if (machine.driver_version == 0) return cudaErrorInsufficientDriver;
  return machine.num_devices == 0 ? cudaErrorNoDevice : cudaSuccess;
}

}  // namespace

const char* cudaGetErrorName(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "cudaSuccess";
    case cudaErrorInvalidValue:
      return "cudaErrorInvalidValue";
    case cudaErrorMemoryAllocation:
      return "cudaErrorMemoryAllocation";
    case cudaErrorInsufficientDriver:
      return "cudaErrorInsufficientDriver";
    case cudaErrorNoDevice:
      return "cudaErrorNoDevice";
    case cudaErrorInvalidDevice:
      return "cudaErrorInvalidDevice";
    case cudaErrorECCUncorrectable:
      return "cudaErrorECCUncorrectable";
    case cudaErrorIllegalAddress:
      return "cudaErrorIllegalAddress";
    case cudaErrorLaunchOutOfResources:
      return "cudaErrorLaunchOutOfResources";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "cudaErrorHostMemoryAlreadyRegistered";
    case cudaErrorHostMemoryNotRegistered:
      return "cudaErrorHostMemoryNotRegistered";
  }
  return "unknown";
}

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "an argument is out of its range";
    case cudaErrorMemoryAllocation:
      return "memory is used up";
    case cudaErrorInsufficientDriver:
      return "no driver, or one older than this runtime";
    case cudaErrorNoDevice:
      return "no device is there";
    case cudaErrorInvalidDevice:
      return "no device has this number";
    case cudaErrorECCUncorrectable:
      return "a memory error that could not be corrected";
    case cudaErrorIllegalAddress:
      return "an address that is not the device's";
    case cudaErrorLaunchOutOfResources:
      return "a launch asks for more than the device has";
    case cudaErrorHostMemoryAlreadyRegistered:
      return "a part of this host memory is pinned";
    case cudaErrorHostMemoryNotRegistered:
      return "this host memory is not pinned";
  }
  return "unknown";
}

cudaError_t cudaGetLastError() {
  const cudaError_t sticky = Runtime::Get().sticky_error(current_device);
  const cudaError_t error = std::exchange(last_error, cudaSuccess);
  return sticky == cudaSuccess ? error : sticky;
}

cudaError_t cudaDriverGetVersion(int* version) {
  *version = Runtime::Get().machine().driver_version;
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count) {
  const Machine machine = Runtime::Get().machine();
  const cudaError_t error = CheckMachine(machine);
  *count = error == cudaSuccess ? machine.num_devices : 0;
  return Keep(error);
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device;
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  const Machine machine = Runtime::Get().machine();
  if (const cudaError_t error = CheckMachine(machine); error != cudaSuccess) {
    return Keep(error);
  }
  if (device < 0 || device >= machine.num_devices) {
    return Keep(cudaErrorInvalidDevice);
  }
  current_device = device;
  return OrSticky(cudaSuccess);
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const Machine machine = Runtime::Get().machine();
  if (device < 0 || device >= machine.num_devices) {
    return Keep(cudaErrorInvalidDevice);
  }
  *properties = {};
  std::snprintf(properties->name, sizeof(properties->name), "Emulated GPU %d", device);
  properties->totalGlobalMem = machine.device_bytes;
  properties->sharedMemPerBlock = size_t{48} << 10;
  properties->sharedMemPerBlockOptin = size_t{machine.major == 7 ? 64U : 99U} << 10;
  properties->major = machine.major;
  properties->minor = machine.minor;
  properties->multiProcessorCount = 4;
  properties->maxThreadsPerBlock = 1024;
  properties->warpSize = 32;
  properties->l2CacheSize = 4 << 20;
  return cudaSuccess;
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  *total_bytes = Runtime::Get().machine().device_bytes;
  *free_bytes = *total_bytes - Runtime::Get().allocated_bytes(current_device);
  return OrSticky(cudaSuccess);
}

cudaError_t cudaMalloc(void** address, size_t bytes) {
  const cudaError_t sticky = OrSticky(cudaSuccess);
  return sticky != cudaSuccess ? sticky
                               : Keep(Runtime::Get().Allocate(current_device, address, bytes));
}

cudaError_t cudaFree(void* address) {
  return OrSticky(Runtime::Get().Free(address));
}

cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned int /*flags*/) {
  return OrSticky(Runtime::Get().Pin(address, bytes));
}

cudaError_t cudaHostUnregister(void* address) {
  return OrSticky(Runtime::Get().Unpin(address));
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned int flags) {
  if (flags != cudaStreamNonBlocking) {
    Misuse("a stream that orders itself with the default stream");
  }
  const cudaError_t sticky = OrSticky(cudaSuccess);
  *stream = sticky == cudaSuccess ? Runtime::Get().CreateStream(current_device) : nullptr;
  return sticky;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  Runtime::Get().DestroyStream(stream);
  return OrSticky(cudaSuccess);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  return OrSticky(Runtime::Get().SynchronizeStream(stream));
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int /*flags*/) {
  return OrSticky(Runtime::Get().WaitOnStream(stream, event));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned int /*flags*/) {
  const cudaError_t sticky = OrSticky(cudaSuccess);
  *event = sticky == cudaSuccess ? Runtime::Get().CreateEvent() : nullptr;
  return sticky;
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
  Runtime::Get().DestroyEvent(event);
  return OrSticky(cudaSuccess);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return OrSticky(Runtime::Get().Record(event, stream));
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  return OrSticky(Runtime::Get().SynchronizeEvent(event));
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return OrSticky(bytes == 0 ? cudaSuccess : Runtime::Get().Copy(to, from, bytes, kind, stream));
}

cudaError_t cudaMemsetAsync(void* address, int value, size_t bytes, cudaStream_t stream) {
  return OrSticky(bytes == 0 ? cudaSuccess : Runtime::Get().Fill(address, value, bytes, stream));
}

namespace nightshift::cuda_emulator {

cudaError_t EnqueueKernel(cudaStream_t stream, const char* name, std::vector<Access> accesses,
                          std::function<void()> body) {
  return OrSticky(Runtime::Get().Launch(stream, name, accesses, std::move(body)));
}

cudaError_t EnqueueKernel(cudaStream_t stream, const char* name, std::function<void()> body) {
  return EnqueueKernel(stream, name, {}, std::move(body));
}

void SetMachine(const Machine& machine) {
  last_error = cudaSuccess;
  current_device = 0;
  Runtime::Get().SetMachine(machine);
}

void FailCall(Fault fault, int64_t calls) {
  Runtime::Get().FailCall(fault, calls);
}

size_t AllocatedBytes() {
  size_t bytes = 0;
  for (int device = 0; device < Runtime::Get().machine().num_devices; ++device) {
    bytes += Runtime::Get().allocated_bytes(device);
  }
  return bytes;
}

}  // namespace nightshift::cuda_emulator
