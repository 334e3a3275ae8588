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

// Why the profile in the default place is no longer of this machine, whose packs lie in `folder`,
// and what to do; empty when it is, or when there is none to read. One of a device with memory of
// its own is not held to what this process would run on.
std::string StaleProfileNote(const std::string& folder, int64_t memory_limit_bytes);

// A table for people.
std::string CalibrationText(const CalibrateOptions& options, const Calibration& calibration);

}  // namespace nightshift
