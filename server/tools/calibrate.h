// `nightshift calibrate`: measures this machine and keeps its profile for planning.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "engine/policy/calibration.h"
#include "kernels/base/clock.h"

namespace nightshift {

struct CalibrateOptions {
  CalibrationOptions calibration;
  std::string output;  // the file of the profile

  // Fills in the default file and folder, where they are empty, and checks the rest. Errors:
  // INVALID_ARGUMENT naming option and value.
  absl::Status Resolve();
};

// Measures and writes the profile. Errors: as Calibrate and StoreHardwareProfile; that something
// else is in the profile's place is found before anything is measured.
absl::StatusOr<Calibration> RunCalibrate(const CalibrateOptions& options, const Clock& clock);

// In what the machine of a profile differs from this one, whose packs lie in `folder`, and what to
// do; empty when in nothing, or when that cannot be found out. `given` is what --hardware named;
// empty: the profile is that of the default place.
std::string ProfileNote(const std::string& given, const HardwareProfile& profile,
                        const std::string& folder, int64_t memory_limit_bytes);

// A table for people.
std::string CalibrationText(const CalibrateOptions& options, const Calibration& calibration);

}  // namespace nightshift
