// The launch half of the emulator: the blocks and threads of one kernel on one thread of the host.
//
// Blocks run one after the other, the threads of a block too, as plain calls, until one waits for
// others: at a barrier, or for the lanes of its warp. Then it is put aside with its stack (a fiber)
// and the next one goes on. A kernel without barriers is thus a plain loop.
#pragma once

#include <cstdint>
#include <functional>

struct uint3 {
  unsigned int x = 0;
  unsigned int y = 0;
  unsigned int z = 0;
};

struct dim3 {
  // As CUDA has them: a number stands for (number, 1, 1).
  constexpr dim3(unsigned int x_in = 1, unsigned int y_in = 1, unsigned int z_in = 1)
      : x(x_in), y(y_in), z(z_in) {}
  unsigned int x;
  unsigned int y;
  unsigned int z;
};

// Of the thread that runs.
inline constinit thread_local uint3 threadIdx;
inline constinit thread_local uint3 blockIdx;
inline constinit thread_local dim3 blockDim;
inline constinit thread_local dim3 gridDim;

namespace nightshift::cuda_emulator {

// A line of the kernel's source. (std::source_location is not clang 14's.)
class Place {
 public:
  constexpr Place() = default;
  static constexpr Place current(const char* file_name = __builtin_FILE(),
                                 int line = __builtin_LINE()) {
    return Place(file_name, line);
  }
  constexpr const char* file_name() const { return file_name_; }
  constexpr int line() const { return line_; }

 private:
  constexpr Place(const char* file_name, int line) : file_name_(file_name), line_(line) {}
  const char* file_name_ = "";
  int line_ = 0;
};

// Calls `thread` once for each thread of each block. Threads that wait for what never comes end the
// process: with the kernel's name, where they wait, and how many have ended or wait elsewhere.
void RunGrid(const char* name, dim3 blocks, dim3 threads, const std::function<void()>& thread);

// Of a kernel's thread: returns when all threads of its block are here.
void SyncThreads(const Place& place);

// Of a kernel's thread: returns the value that lane `source` of its warp came with, when all lanes
// of the warp are here.
uint64_t Exchange(uint64_t value, int source, const Place& place);

}  // namespace nightshift::cuda_emulator
