// Calibration: measures this machine's HardwareProfile. The only part of the folder that does not
// compute but waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/policy/hardware_profile.h"
#include "engine/policy/measurement.h"
#include "kernels/base/clock.h"
#include "kernels/device.h"

namespace nightshift {

struct CalibrationOptions {
  std::string folder;              // on the disk of packs and of what is spilled
  int64_t host_bytes = 0;          // usable: what the process may still take
  int64_t memory_limit_bytes = 0;  // of the process, for the fingerprint
  // Above 0: of a device with memory of its own, the discrete CPU device with the links and rates
  // of `discrete`. 0: the CPU device, whose memory is the host's.
  int64_t device_bytes = 0;
  DiscreteCpuOptions discrete = {};  // num_threads counts in both cases
  // Of what is read so that no cache holds it; lowered to a quarter of host_bytes.
  int64_t memory_bytes = int64_t{512} << 20;
  int64_t most_rows = 2048;  // of matmuls and prompts: at least 32, at most this
  // Written first, then read and written in parts; lowered to a quarter of the free disk.
  int64_t disk_file_bytes = int64_t{2} << 30;
  double most_write_seconds = 12.0;  // for that; a slow disk gets a smaller file
  MeasureOptions measure = {};
};

struct Calibration {
  HardwareProfile profile;
  std::vector<std::string> notes;  // for people: what makes the figures worth less
  MeasureCounts counts;
  double seconds = 0.0;  // in all
};

// Leaves nothing behind. Errors: NOT_FOUND, INVALID_ARGUMENT (folder), RESOURCE_EXHAUSTED (disk or
// memory, with asked and free), FAILED_PRECONDITION (the disk says no).
// Threads: one, beside those of the device and of the disk.
absl::StatusOr<Calibration> Calibrate(const CalibrationOptions& options, const Clock& clock);

}  // namespace nightshift
