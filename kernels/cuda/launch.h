// The one door through which kernels are launched, so that their sources are the same for nvcc and
// for the host's compiler (tests/support/cuda_emulator). For .cu files, which define kernels.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>
#include <vector>

#include <cuda_runtime.h>
#include <device_launch_parameters.h>

#include "kernels/tensor_view.h"

namespace nightshift::cuda {

// Launches kernels on one stream, one after the other, and keeps the first refusal. What goes wrong
// while a kernel runs is not seen here: the stream's next wait tells.
class Launcher {
 public:
  explicit Launcher(cudaStream_t stream) : stream_(stream) {}

  // Does nothing for a grid of no blocks. `name` is kept by address.
  template <typename... Parameters>
  void Launch(const char* name, dim3 blocks, int threads, void (*kernel)(Parameters...),
              const std::type_identity_t<Parameters>&... arguments);

  // Says that the next launch, or what its op launches behind it, reads or writes this device memory:
  // for the emulator, which looks for works of other streams that do so without a fence between.
#if defined(CUDA_EMULATOR)
  void Touch(const void* address, int64_t bytes, bool writes) {
    if (bytes > 0) accesses_.push_back({address, static_cast<size_t>(bytes), writes});
  }
#else
  void Touch(const void* /*address*/, int64_t /*bytes*/, bool /*writes*/) {}
#endif
  void Touch(const MatrixView& x, bool writes) {
    const int64_t floats = x.rows == 0 ? 0 : (x.rows - 1) * x.stride + x.columns;
    Touch(x.data, floats * static_cast<int64_t>(sizeof(float)), writes);
  }

  cudaStream_t stream() const { return stream_; }
  // Keeps the first error and which step it was.
  void Note(const char* step, cudaError_t error) {
    if (error_ != cudaSuccess || error == cudaSuccess) return;
    error_ = error;
    failed_step_ = step;
  }
  cudaError_t error() const { return error_; }
  const char* failed_step() const { return failed_step_; }

 private:
  cudaStream_t stream_;
  cudaError_t error_ = cudaSuccess;
  const char* failed_step_ = "";
#if defined(CUDA_EMULATOR)
  std::vector<cuda_emulator::Access> accesses_;  // of the next launch
#endif
};

#if defined(__CUDACC__)

template <typename... Parameters>
void Launcher::Launch(const char* name, dim3 blocks, int threads, void (*kernel)(Parameters...),
                      const std::type_identity_t<Parameters>&... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  kernel<<<blocks, static_cast<unsigned int>(threads), 0, stream_>>>(arguments...);
  Note(name, cudaGetLastError());
}

#elif defined(CUDA_EMULATOR)

template <typename... Parameters>
void Launcher::Launch(const char* name, dim3 blocks, int threads, void (*kernel)(Parameters...),
                      const std::type_identity_t<Parameters>&... arguments) {
  if (blocks.x == 0 || blocks.y == 0 || blocks.z == 0) return;
  Note(name, cuda_emulator::LaunchGrid(stream_, name, blocks, static_cast<unsigned int>(threads),
                                       std::exchange(accesses_, {}),
                                       [=] { kernel(arguments...); }));
}

#endif

}  // namespace nightshift::cuda
