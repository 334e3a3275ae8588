// Profiles of machines that are not here: from data sheets and papers, for planning what to buy or
// to rent. Pure; each profile's `source` says where its figures are from and what is assumed.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

#include "engine/policy/hardware_profile.h"

namespace nightshift {

// In a fixed order: "t4" and its variants, the other GPUs, machines without one.
std::vector<std::string> KnownHardwareNames();

// A valid profile with an empty fingerprint. Errors: NOT_FOUND, which lists the names.
absl::StatusOr<HardwareProfile> KnownHardware(absl::string_view name);

}  // namespace nightshift
