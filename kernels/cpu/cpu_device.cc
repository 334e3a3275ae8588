#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>

#include <hwy/targets.h>
#include <sched.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"
#include "kernels/base/pacer.h"
#include "kernels/base/status_macros.h"
#include "kernels/base/worker_pool.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/paced_ops.h"
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

// Something of each compute type.
template <typename T>
struct OfTypes {
  T& of(ComputeType compute_type) {
    switch (compute_type) {
      case ComputeType::kF32:
        return f32;
      case ComputeType::kBF16:
        return bf16;
      case ComputeType::kInt8:
        return int8;
    }
    return f32;
  }

  T f32;
  T bf16;
  T int8;
};

OfTypes<cpu::CpuOps> MakeOps(WorkerPool& pool) {
  return {.f32{ComputeType::kF32, pool},
          .bf16{ComputeType::kBF16, pool},
          .int8{ComputeType::kInt8, pool}};
}

void CopyBytes(std::span<const std::byte> from, std::span<std::byte> to) {
  CHECK_EQ(from.size(), to.size());
  std::copy(from.begin(), from.end(), to.begin());
}

class CpuDevice : public Device {
 public:
  explicit CpuDevice(int num_threads)
      : pool_(num_threads), ops_(MakeOps(pool_)), host_ops_(MakeOps(pool_)) {}

  Ops& ops(ComputeType compute_type) override { return ops_.of(compute_type); }
  Ops& host_ops(ComputeType compute_type) override { return host_ops_.of(compute_type); }
  bool unified_memory() const override { return true; }
  absl::Status Upload(std::span<const std::byte> from, std::span<std::byte> to) override {
    CopyBytes(from, to);
    return absl::OkStatus();
  }
  absl::Status Download(std::span<const std::byte> from, std::span<std::byte> to) override {
    CopyBytes(from, to);
    return absl::OkStatus();
  }
  WorkerPool& workers() override { return pool_; }
  std::string description() const override {
    const int threads = pool_.num_threads();
    return absl::StrCat("cpu, ", threads, threads == 1 ? " thread, " : " threads, ",
                        cpu::TargetName());
  }

 private:
  WorkerPool pool_;
  OfTypes<cpu::CpuOps> ops_;
  OfTypes<cpu::CpuOps> host_ops_;
};

// A CPU device whose memory is said to be its own, at rates of its own.
class DiscreteCpuDevice : public CpuDevice {
 public:
  DiscreteCpuDevice(int num_threads, const DiscreteCpuOptions& options, const Clock& clock)
      : CpuDevice(num_threads), options_(options), clock_(clock) {
    if (options.upload_bytes_per_s > 0.0) {
      upload_pacer_.emplace(options.upload_bytes_per_s, clock);
    }
    if (options.download_bytes_per_s > 0.0) {
      download_pacer_.emplace(options.download_bytes_per_s, clock);
    }
    if (options.flops_per_s > 0.0) {
      const auto paced = [&](ComputeType type) {
        return cpu::PacedOps(CpuDevice::ops(type), options.flops_per_s, clock);
      };
      paced_.emplace(OfTypes<cpu::PacedOps>{.f32 = paced(ComputeType::kF32),
                                            .bf16 = paced(ComputeType::kBF16),
                                            .int8 = paced(ComputeType::kInt8)});
    }
  }

  Ops& ops(ComputeType compute_type) override {
    return paced_ ? paced_->of(compute_type) : CpuDevice::ops(compute_type);
  }
  bool unified_memory() const override { return false; }
  absl::Status Upload(std::span<const std::byte> from, std::span<std::byte> to) override {
    CopyAtRate(from, to, upload_pacer_);
    return absl::OkStatus();
  }
  absl::Status Download(std::span<const std::byte> from, std::span<std::byte> to) override {
    CopyAtRate(from, to, download_pacer_);
    return absl::OkStatus();
  }
  std::string description() const override {
    std::string text = absl::StrCat(CpuDevice::description(), ", discrete");
    const auto add = [&](const char* what, double rate, const char* unit) {
      if (rate > 0.0) {
        absl::StrAppend(&text, ", ", what, " ", rate / 1e9, " ", unit);
      }
    };
    add("upload", options_.upload_bytes_per_s, "GB/s");
    add("download", options_.download_bytes_per_s, "GB/s");
    add("matmul", options_.flops_per_s, "GFLOP/s");
    return text;
  }

 private:
  void CopyAtRate(std::span<const std::byte> from, std::span<std::byte> to,
                  std::optional<Pacer>& pacer) {
    const int64_t start_us = clock_.MonotonicMicros();
    CopyBytes(from, to);
    if (pacer) {
      pacer->Finish(static_cast<double>(from.size()), start_us);
    }
  }

  const DiscreteCpuOptions options_;
  const Clock& clock_;
  std::optional<Pacer> upload_pacer_;
  std::optional<Pacer> download_pacer_;
  std::optional<OfTypes<cpu::PacedOps>> paced_;
};

absl::StatusOr<int> NumThreads(int num_threads) {
  if (num_threads < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("create the cpu device with ", num_threads,
                     " threads: the count must be 0 (one a core) or positive"));
  }
  return num_threads == 0 ? UsableCores() : num_threads;
}

absl::Status ValidateRate(const char* name, double rate) {
  if (std::isfinite(rate) && rate >= 0.0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("create the discrete cpu device with ", name, " ", rate,
                   ": the rate must be 0 (as fast as the machine) or positive and finite"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> CreateCpuDevice(int num_threads) {
  ASSIGN_OR_RETURN(const int threads, NumThreads(num_threads));
  return std::make_unique<CpuDevice>(threads);
}

absl::StatusOr<std::unique_ptr<Device>> CreateDiscreteCpuDevice(const DiscreteCpuOptions& options,
                                                                const Clock& clock) {
  ASSIGN_OR_RETURN(const int threads, NumThreads(options.num_threads));
  RETURN_IF_ERROR(ValidateRate("upload_bytes_per_s", options.upload_bytes_per_s));
  RETURN_IF_ERROR(ValidateRate("download_bytes_per_s", options.download_bytes_per_s));
  RETURN_IF_ERROR(ValidateRate("flops_per_s", options.flops_per_s));
  return std::make_unique<DiscreteCpuDevice>(threads, options, clock);
}

}  // namespace nightshift
