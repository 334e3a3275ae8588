#include "engine/policy/quantity_text.h"

#include <array>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_format.h"

namespace nightshift {

std::string BytesText(double bytes) {
  constexpr std::array<const char*, 5> kUnits = {"bytes", "KiB", "MiB", "GiB", "TiB"};
  size_t unit = 0;
  while (std::abs(bytes) >= 1024 && unit + 1 < kUnits.size()) {
    bytes /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%.0f %s", bytes, kUnits[unit])
                   : absl::StrFormat("%.4g %s", bytes, kUnits[unit]);
}

std::string DurationText(double seconds) {
  constexpr double kDay = 24 * 3600;
  if (seconds < 1) {
    return absl::StrFormat("%.3g ms", seconds * 1e3);
  }
  if (seconds < 600) {
    return absl::StrFormat("%.3g s", seconds);
  }
  const double minutes = std::round(seconds / 60);
  if (minutes < 120) {
    return absl::StrFormat("%.0f min", minutes);
  }
  if (seconds < 2 * kDay) {
    const double hours = std::floor(minutes / 60);
    return absl::StrFormat("%.0f h %.0f min", hours, minutes - 60 * hours);
  }
  return absl::StrFormat("%.1f days", seconds / kDay);
}

}  // namespace nightshift
