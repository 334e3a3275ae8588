// TierFlags: the flags that say where weights, keys, values and activations lie, as they are
// written; the same for the daemon and for bench.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/tier_options.h"
#include "server/device_choice.h"

namespace nightshift {

struct TierFlags {
  std::string device = "cpu";
  std::string gpu = "0";
  std::string device_budget;
  std::string upload_rate;
  std::string download_rate;
  std::string device_flops;
  std::string spill_budget;
  std::string spill_folder;
  std::string weight_shares;
  std::string kv_shares;
  std::string activation_shares;
  std::string schedule = "rolling";
  std::string weight_buffer = "ring";
  std::string weight_checks = "every";
  std::string overlap = "on";
  std::string attention = "device";
};

struct TierFlag {
  const char* key;  // without dashes
  std::string* text;
  const char* help;
};

// All of them, once; each refers to a field of `flags`.
std::vector<TierFlag> ListTierFlags(TierFlags& flags);

// "DEVICE,HOST" in per cent; `shares` stay as they are when the text is empty. Errors:
// INVALID_ARGUMENT naming flag and text.
absl::Status ReadShareFlag(const char* key, const std::string& text, TierShares& shares);

// Which device they ask for. Errors: INVALID_ARGUMENT naming flag and text.
absl::StatusOr<DeviceChoice> ReadDeviceFlags(const TierFlags& flags);

// What the others say. Errors: INVALID_ARGUMENT naming flag and text.
absl::StatusOr<TierOptions> ReadTierFlags(const TierFlags& flags);

}  // namespace nightshift
