#include "server/device_choice.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/device.h"

namespace nightshift {
namespace {

// Of a GPU's memory: what is left holds CUDA itself, cuBLAS and the device's workspaces.
constexpr double kShareOfMemory = 0.85;

// What is in the way of a GPU.
absl::StatusOr<int64_t> BudgetOfGpu(const DeviceChoice& choice, ComputeType compute_type,
                                    double sparse_attention) {
  if (compute_type == ComputeType::kInt8) {
    return absl::FailedPreconditionError("compute type int8 is the CPU's only");
  }
  if (sparse_attention < 1.0) {
    return absl::FailedPreconditionError("sparse attention is the CPU's only");
  }
  const absl::StatusOr<int64_t> bytes = GpuMemoryBytes(choice.gpu);
  if (!bytes.ok()) {
    return bytes.status();
  }
  return static_cast<int64_t>(kShareOfMemory * static_cast<double>(*bytes));
}

}  // namespace

absl::StatusOr<std::string> ChooseDevice(const DeviceChoice& choice, ComputeType compute_type,
                                         double sparse_attention, TierOptions& tiers) {
  if (choice.kind == DeviceKind::kCpu) {
    return std::string("the CPU (--device cpu)");
  }
  const absl::StatusOr<int64_t> budget = BudgetOfGpu(choice, compute_type, sparse_attention);
  if (!budget.ok()) {
    if (choice.kind == DeviceKind::kCuda) {
      return absl::Status(budget.status().code(),
                          absl::StrCat("--device cuda: ", budget.status().message()));
    }
    return absl::StrCat("the CPU: ", budget.status().message());
  }
  tiers.gpu = choice.gpu;
  if (tiers.device_budget_bytes == 0) {
    tiers.device_budget_bytes = *budget;
  }
  return absl::StrCat("GPU ", choice.gpu, " with ", tiers.device_budget_bytes,
                      " bytes of its memory");
}

}  // namespace nightshift
