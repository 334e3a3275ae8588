// The one door through which kernels are launched, so that their sources are the same for nvcc and
// for the host's compiler (tests/support/cuda_emulator). For .cu files, which define kernels.
#pragma once

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>
#include <device_launch_parameters.h>

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
                                       [=] { kernel(arguments...); }));
}

#endif

}  // namespace nightshift::cuda
