#include "tests/bench/kernel_bench.h"

#include <algorithm>
#include <cstdio>
#include <cstring>

#include <sys/mman.h>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

#include "kernels/base/memory_traffic.h"
#include "kernels/cpu/target_name.h"
#include "tests/bench/roof.h"
#include "tests/bench/timing.h"

namespace nightshift {
namespace {

constexpr int64_t kHugePage = int64_t{2} << 20;
constexpr double kRoundSeconds = 0.02;
// Larger than the last-level cache share of any core that this runs on.
constexpr int64_t kMemoryBytes = int64_t{512} << 20;
// What kernels come near to of the peak, for the roof.
constexpr double kPeakShare = 0.8;

}  // namespace

Bytes::Bytes(int64_t count)
    : memory_(std::aligned_alloc(kHugePage, static_cast<size_t>(RoundUp(count, kHugePage)))) {
  const auto bytes = static_cast<size_t>(RoundUp(count, kHugePage));
  madvise(memory_.get(), bytes, MADV_HUGEPAGE);
  std::memset(memory_.get(), 0, bytes);
}

KernelBench::KernelBench(const KernelBenchOptions& options)
    : options_(options),
      target_(cpu::TargetName()),
      pool_(options.threads),
      device_(CreateCpuDevice(options.threads).value()) {}

bool KernelBench::Wants(const std::string& name) const {
  return absl::StrContains(name, options_.only);
}

Reference KernelBench::Peak(ComputeType compute) {
  const PeakLoop loop{target_, compute};
  return {.name = "peak",
          .run = [this, loop] { RunPeakLoop(loop, pool_); },
          .amount = static_cast<double>(PeakLoopFlops(loop) * pool_.num_threads())};
}

std::byte* KernelBench::Memory() {
  if (!memory_.has_value()) memory_.emplace(kMemoryBytes);
  return memory_->data();
}

Reference KernelBench::Bandwidth() {
  const std::byte* memory = Memory();
  return {.name = "bandwidth",
          .run = [this, memory] { ReadMemory(memory, kMemoryBytes, pool_); },
          .amount = static_cast<double>(kMemoryBytes),
          .is_bytes = true};
}

Reference KernelBench::Copy() {
  std::byte* memory = Memory();
  return {
      .name = "copy",
      .run = [this,
              memory] { CopyMemory(memory, kMemoryBytes / 2, memory + kMemoryBytes / 2, pool_); },
      .amount = static_cast<double>(kMemoryBytes),
      .is_bytes = true};
}

std::vector<double> KernelBench::Time(const std::vector<std::function<void()>>& functions) const {
  return TimeInTurns(functions, options_.threads, kRoundSeconds);
}

void KernelBench::Print(const std::string& name, const Line& line) const {
  absl::PrintF(R"({"bench": "kernels", "case": "%s", "target": "%s", "threads": %d, )"
               R"("value": %.2f, "unit": "%s", "reference": "%s", "reference_value": %.2f, )"
               R"("ratio": %.3f})"
               "\n",
               name, target_, options_.threads, line.value, line.unit, line.reference,
               line.reference_value, line.ratio);
  std::fflush(stdout);
}

void KernelBench::Compare(const std::string& name, const std::function<void()>& ours,
                          const Work& work, const std::vector<Reference>& references) {
  std::vector<std::function<void()>> functions = {ours};
  for (const Reference& reference : references) {
    functions.push_back(reference.run);
  }
  const std::vector<double> seconds = Time(functions);
  for (size_t i = 0; i < references.size(); ++i) {
    const Reference& reference = references[i];
    const double value = (reference.is_bytes ? work.bytes : work.flops) / seconds[0] * 1e-9;
    const double reference_value = reference.amount / seconds[i + 1] * 1e-9;
    Print(name, {.value = value,
                 .unit = reference.is_bytes ? "GB/s" : "GFLOP/s",
                 .reference = reference.name,
                 .reference_value = reference_value,
                 .ratio = value / reference_value});
  }
}

void KernelBench::CompareWithRoof(const std::string& name, const std::function<void()>& ours,
                                  const Work& work, ComputeType compute) {
  const Reference bandwidth = Bandwidth();
  const Reference peak = Peak(compute);
  const std::vector<double> seconds = Time({ours, bandwidth.run, peak.run});
  const double flops_per_s = kPeakShare * peak.amount / seconds[2];
  const double roof =
      std::min(bandwidth.amount / seconds[1], flops_per_s * work.bytes / work.flops) * 1e-9;
  const double value = work.bytes / seconds[0] * 1e-9;
  const double read = bandwidth.amount / seconds[1] * 1e-9;
  const auto print = [&](const std::string& reference, double reference_value) {
    Print(name, {.value = value,
                 .unit = "GB/s",
                 .reference = reference,
                 .reference_value = reference_value,
                 .ratio = value / reference_value});
  };
  print("roof", roof);
  print(bandwidth.name, read);
}

void KernelBench::CompareThreads(const std::string& name, const std::function<void(Ops&)>& ours,
                                 ComputeType compute) {
  const std::unique_ptr<Device> one = CreateCpuDevice(1).value();
  const std::vector<double> seconds =
      Time({[&] { ours(ops(compute)); }, [&] { ours(one->ops(compute)); }});
  const double times = seconds[1] / seconds[0];
  Print(name, {.value = times,
               .unit = "times",
               .reference = "1 thread",
               .reference_value = 1,
               .ratio = times / options_.threads});
}

}  // namespace nightshift
