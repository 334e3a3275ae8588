// Which device computes, the CPU or a GPU: what is asked for and what this machine has.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

#include "engine/tier_options.h"
#include "kernels/dtype.h"

namespace nightshift {

enum class DeviceKind : uint8_t {
  kAuto,  // the GPU if it can be used, else the CPU
  kCpu,
  kCuda,  // the GPU, or nothing runs
};

struct DeviceChoice {
  DeviceKind kind = DeviceKind::kCpu;
  int32_t gpu = 0;  // as CUDA counts them
};

// Fixes tiers.gpu, and the device budget where none is given: most of the GPU's memory. Returns the
// choice and its reason, for people. Errors: FAILED_PRECONDITION with the reason why --device cuda
// cannot be.
absl::StatusOr<std::string> ChooseDevice(const DeviceChoice& choice, ComputeType compute_type,
                                         double sparse_attention, TierOptions& tiers);

}  // namespace nightshift
