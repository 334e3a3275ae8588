#include "tests/support/cuda_emulator/grid.h"

#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iostream>
#include <memory>
#include <vector>

#include "kernels/base/check.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// Saves the registers that a call keeps and the stack pointer in *save, and goes on where `load`
// was saved. swapcontext does the same with two system calls, at fifty times the cost.
extern "C" void SwitchCudaEmulatorStack(void** save, void* load);
asm(R"(
.text
.type SwitchCudaEmulatorStack, @function
SwitchCudaEmulatorStack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size SwitchCudaEmulatorStack, .-SwitchCudaEmulatorStack
)");

namespace nightshift::cuda_emulator {
namespace {

constexpr int kWarpLanes = 32;
#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = size_t{256} << 10;
#else
constexpr size_t kStackBytes = size_t{64} << 10;
#endif

// A stack that runs threads, or the caller's own.
struct Fiber {
  void* stack_pointer = nullptr;
  std::unique_ptr<std::byte[]> stack;
  int thread = 0;
  // What AddressSanitizer has to know of where it goes.
  void* fake_stack = nullptr;
  const void* bottom = nullptr;
  size_t bytes = 0;
};

void BeginSwitch([[maybe_unused]] Fiber& from, [[maybe_unused]] const Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(&from.fake_stack, to.bottom, to.bytes);
#endif
}

void EndSwitch([[maybe_unused]] Fiber& arrived, [[maybe_unused]] Fiber* left) {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(arrived.fake_stack, &bottom, &bytes);
  if (left != nullptr) {
    left->bottom = bottom;
    left->bytes = bytes;
  }
#endif
}

// Lanes that wait for each other. A lane has read the values of one exchange before it comes to the
// next one but one, so two sets of them suffice.
struct Warp {
  std::array<std::array<uint64_t, kWarpLanes>, 2> values = {};
  int turn = 0;
  std::vector<Fiber*> waiting;
  Place place;
};

bool IsSame(const Place& a, const Place& b) {
  return a.line() == b.line() && std::strcmp(a.file_name(), b.file_name()) == 0;
}

// The threads of one block after the other; one a thread of the host, with stacks that stay.
class BlockRunner {
 public:
  void Run(const char* name, dim3 threads, const std::function<void()>& thread) {
    name_ = name;
    thread_ = &thread;
    num_threads_ = static_cast<int>(threads.x * threads.y * threads.z);
    started_ = 0;
    ended_ = 0;
    warps_.resize(static_cast<size_t>((num_threads_ + kWarpLanes - 1) / kWarpLanes));
    while (ended_ < num_threads_) {
      if (!ready_.empty()) {
        Fiber* next = ready_.front();
        ready_.pop_front();
        Resume(*next);
      } else if (started_ < num_threads_) {
        Resume(TakeFiber());
      } else {
        FailStalled();
      }
    }
    CHECK(waiting_.empty());
  }

  void SyncThreads(const Place& place) {
    if (waiting_.empty()) barrier_ = place;
    if (!IsSame(barrier_, place)) Fail("threads wait at different barriers", barrier_, place);
    if (static_cast<int>(waiting_.size()) + 1 == num_threads_) {
      Release(waiting_);
      return;
    }
    waiting_.push_back(current_);
    Wait();
  }

  uint64_t Exchange(uint64_t value, int source, const Place& place) {
    const int thread = current_->thread;
    Warp& warp = warps_[static_cast<size_t>(thread / kWarpLanes)];
    if (warp.waiting.empty()) warp.place = place;
    if (!IsSame(warp.place, place)) Fail("lanes of a warp exchange apart", warp.place, place);
    const auto& values = warp.values[static_cast<size_t>(warp.turn)];
    warp.values[static_cast<size_t>(warp.turn)][static_cast<size_t>(thread % kWarpLanes)] = value;
    if (warp.waiting.size() + 1 == kWarpLanes) {
      warp.turn = 1 - warp.turn;
      Release(warp.waiting);
    } else {
      warp.waiting.push_back(current_);
      Wait();
    }
    return values[static_cast<size_t>(source)];
  }

 private:
  // Runs threads of the present block until none is left to start, then is free.
  static void RunThreads();

  Fiber& TakeFiber() {
    if (free_.empty()) {
      fibers_.push_back(std::make_unique<Fiber>());
      Fiber& fiber = *fibers_.back();
      fiber.stack = std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
      fiber.bottom = fiber.stack.get();
      fiber.bytes = kStackBytes;
      // As SwitchCudaEmulatorStack left it: six registers and where to return to, which a call's
      // alignment puts 8 bytes off a multiple of 16.
      const auto end = reinterpret_cast<uintptr_t>(fiber.stack.get() + kStackBytes) / 16 * 16;
      auto* top = reinterpret_cast<void**>(end) - 8;
      top[6] = reinterpret_cast<void*>(&RunThreads);
      fiber.stack_pointer = top;
      return fiber;
    }
    Fiber& fiber = *free_.back();
    free_.pop_back();
    return fiber;
  }

  void SetThread(int thread) {
    current_->thread = thread;
    const auto index = static_cast<unsigned int>(thread);
    threadIdx = {index % blockDim.x, index / blockDim.x % blockDim.y,
                 index / blockDim.x / blockDim.y};
  }

  void Resume(Fiber& fiber) {
    current_ = &fiber;
    SetThread(fiber.thread);
    BeginSwitch(scheduler_, fiber);
    SwitchCudaEmulatorStack(&scheduler_.stack_pointer, fiber.stack_pointer);
    EndSwitch(scheduler_, nullptr);
  }

  // Back to the scheduler until it resumes this fiber.
  void Wait() {
    Fiber& fiber = *current_;
    BeginSwitch(fiber, scheduler_);
    SwitchCudaEmulatorStack(&fiber.stack_pointer, scheduler_.stack_pointer);
    EndSwitch(fiber, &scheduler_);
  }

  void Release(std::vector<Fiber*>& waiting) {
    ready_.insert(ready_.end(), waiting.begin(), waiting.end());
    waiting.clear();
  }

  [[noreturn]] void Fail(const char* what, const Place& place, const Place& other) const {
    std::cerr << "cuda emulator: kernel " << name_ << ", block " << blockIdx.x << "," << blockIdx.y
              << "," << blockIdx.z << ": " << what << ": " << place.file_name() << ":"
              << place.line() << " and line " << other.line() << "\n";
    std::abort();
  }

  [[noreturn]] void FailStalled() const {
    std::cerr << "cuda emulator: kernel " << name_ << ", block " << blockIdx.x << "," << blockIdx.y
              << "," << blockIdx.z << ": of " << num_threads_ << " threads " << ended_
              << " have ended";
    if (!waiting_.empty()) {
      std::cerr << ", " << waiting_.size() << " wait at __syncthreads of " << barrier_.file_name()
                << ":" << barrier_.line();
    }
    for (const Warp& warp : warps_) {
      if (warp.waiting.empty()) continue;
      std::cerr << ", " << warp.waiting.size() << " wait for their warp at "
                << warp.place.file_name() << ":" << warp.place.line();
    }
    std::cerr << "\n";
    std::abort();
  }

  const char* name_ = "";
  const std::function<void()>* thread_ = nullptr;
  int num_threads_ = 0;
  int started_ = 0;
  int ended_ = 0;
  Fiber scheduler_;
  Fiber* current_ = nullptr;
  std::deque<Fiber*> ready_;
  std::vector<Fiber*> waiting_;  // at a barrier
  Place barrier_;
  std::vector<Warp> warps_;
  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Fiber*> free_;
};

BlockRunner& Runner() {
  static thread_local BlockRunner runner;
  return runner;
}

void BlockRunner::RunThreads() {
  BlockRunner& runner = Runner();
  Fiber& fiber = *runner.current_;
  EndSwitch(fiber, &runner.scheduler_);
  while (true) {
    while (runner.started_ < runner.num_threads_) {
      runner.SetThread(runner.started_++);
      (*runner.thread_)();
      ++runner.ended_;
    }
    runner.free_.push_back(&fiber);
    runner.Wait();
  }
}

}  // namespace

void RunGrid(const char* name, dim3 blocks, dim3 threads, const std::function<void()>& thread) {
  gridDim = blocks;
  blockDim = threads;
  for (unsigned int z = 0; z < blocks.z; ++z) {
    for (unsigned int y = 0; y < blocks.y; ++y) {
      for (unsigned int x = 0; x < blocks.x; ++x) {
        blockIdx = {x, y, z};
        Runner().Run(name, threads, thread);
      }
    }
  }
}

void SyncThreads(const Place& place) {
  Runner().SyncThreads(place);
}

uint64_t Exchange(uint64_t value, int source, const Place& place) {
  return Runner().Exchange(value, source, place);
}

}  // namespace nightshift::cuda_emulator
