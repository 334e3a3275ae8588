// The file that keeps this machine's measured profile between runs.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/policy/hardware_profile.h"
#include "engine/policy/machine.h"

namespace nightshift {

// $NIGHTSHIFT_CACHE/hardware.json, else $XDG_CACHE_HOME/nightshift/hardware.json, else
// $HOME/.cache/nightshift/hardware.json, else /var/cache/nightshift/hardware.json. As the XDG
// specification asks, a relative XDG_CACHE_HOME or HOME counts as unset.
std::string DefaultHardwarePath();

// Errors: NOT_FOUND (with what to run); INVALID_ARGUMENT naming the file and what of it is wrong;
// as ReadSmallFile.
absl::StatusOr<HardwareProfile> LoadHardwareProfile(const std::string& path);

// A known machine's profile (known_hardware.h) by its name, or that of a file by its path. Errors:
// NOT_FOUND when it is neither; as LoadHardwareProfile.
absl::StatusOr<HardwareProfile> FindHardwareProfile(const std::string& name_or_path);

// Why a profile's rates are not those of this machine as it is: "memory was 4.0 GiB, is 2.0 GiB".
// Empty when they are. A profile of a device with memory of its own is not held to what this
// process would compute on.
std::string WhyStale(const HardwareProfile& profile, const MachineFacts& machine);

// Makes the folder that a profile's path lies in, and tries to write there: OK when a profile can be
// stored, in place of an older one or where nothing is. Errors: ALREADY_EXISTS; INVALID_ARGUMENT (a
// folder); as errno.
absl::Status PrepareHardwarePath(const std::string& path);

// Writes the file whole or not at all, in place of an older profile but of nothing else. Errors: as
// PrepareHardwarePath.
absl::Status StoreHardwareProfile(const std::string& path, const HardwareProfile& profile);

// A profile's refinement, kept in a file of its own. Errors: NOT_FOUND; as RefinementFromJson,
// naming the file; as errno.
absl::StatusOr<ProfileRefinement> LoadRefinement(const std::string& path,
                                                 const HardwareProfile& profile);
absl::Status StoreRefinement(const std::string& path, const HardwareProfile& profile);

}  // namespace nightshift
