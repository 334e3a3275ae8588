#include "engine/tier_options.h"

#include <cmath>

#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status CheckShares(const char* what, const TierShares& shares, int64_t disk_budget_bytes,
                         bool needs_budget) {
  if (!std::isfinite(shares.device) || !std::isfinite(shares.host) || shares.device > 1.0 ||
      shares.host > 1.0 || shares.of_device() + shares.of_host() > 1.0 + 1e-9) {
    return absl::InvalidArgumentError(
        absl::StrCat("shares of ", what, " are ", shares.device, " on the device and ", shares.host,
                     " on the host; each must be 0 to 1, and both together too"));
  }
  const bool uses_disk = shares.is_given() && shares.of_device() + shares.of_host() < 1.0 - 1e-9;
  if (uses_disk && needs_budget && disk_budget_bytes == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("shares of ", what, " leave ", 1.0 - shares.of_device() - shares.of_host(),
                     " for the disk, whose budget is 0: give it one or raise the shares"));
  }
  return absl::OkStatus();
}

absl::Status CheckRate(const char* what, double rate) {
  return std::isfinite(rate) && rate >= 0.0
             ? absl::OkStatus()
             : absl::InvalidArgumentError(
                   absl::StrCat("engine option ", what, " is ", rate, "; must be 0 or above"));
}

}  // namespace

absl::Status TierOptions::Validate() const {
  if (device_budget_bytes < 0 || disk_budget_bytes < 0) {
    return absl::InvalidArgumentError(absl::StrCat("tier budgets are ", device_budget_bytes,
                                                   " bytes of the device and ", disk_budget_bytes,
                                                   " of the disk; neither may be negative"));
  }
  if (gpu.has_value() && device_budget_bytes == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "GPU ", *gpu, " is to be used with 0 bytes of its memory: give it a device budget"));
  }
  RETURN_IF_ERROR(CheckRate("upload_bytes_per_s", upload_bytes_per_s));
  RETURN_IF_ERROR(CheckRate("download_bytes_per_s", download_bytes_per_s));
  RETURN_IF_ERROR(CheckRate("device_flops_per_s", device_flops_per_s));
  RETURN_IF_ERROR(CheckShares("weights", weights, disk_budget_bytes, false));
  RETURN_IF_ERROR(CheckShares("keys and values", kv, disk_budget_bytes, true));
  RETURN_IF_ERROR(CheckShares("activations", activations, disk_budget_bytes, true));
  if (disk_budget_bytes > 0 && spill_folder.empty()) {
    return absl::InvalidArgumentError(
        "a disk budget for keys, values and activations needs a folder: spill_folder is empty");
  }
  return absl::OkStatus();
}

}  // namespace nightshift
