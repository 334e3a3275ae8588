#include <algorithm>
#include <memory>
#include <string>
#include <thread>

#include <hwy/targets.h>
#include <sched.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/worker_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/target_name.h"
#include "kernels/device.h"

namespace nightshift {
namespace {

// Cores that this process may run on: fewer than the machine's under taskset or a container.
int UsableCores() {
  cpu_set_t cores;
  CPU_ZERO(&cores);
  if (sched_getaffinity(0, sizeof(cores), &cores) == 0) return std::max(1, CPU_COUNT(&cores));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int num_threads)
      : pool_(num_threads),
        f32_ops_(ComputeType::kF32, pool_),
        bf16_ops_(ComputeType::kBF16, pool_) {}

  Ops& ops(ComputeType compute_type) override {
    return compute_type == ComputeType::kF32 ? f32_ops_ : bf16_ops_;
  }
  bool unified_memory() const override { return true; }
  WorkerPool& workers() override { return pool_; }
  std::string description() const override {
    const int threads = pool_.num_threads();
    return absl::StrCat("cpu, ", threads, threads == 1 ? " thread, " : " threads, ",
                        cpu::TargetName());
  }

 private:
  WorkerPool pool_;
  cpu::CpuOps f32_ops_;
  cpu::CpuOps bf16_ops_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int num_threads) {
  if (num_threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("create the cpu device with ", num_threads,
                     " threads: the count must be 0 (one a core) or positive"));
  }
  return std::make_unique<CpuDevice>(num_threads == 0 ? UsableCores() : num_threads);
}

}  // namespace nightshift
