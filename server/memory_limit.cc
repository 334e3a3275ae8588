#include "server/memory_limit.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#include "kernels/base/memory_cgroup.h"

namespace nightshift {
namespace {

std::optional<double> UnitBytes(absl::string_view unit) {
  constexpr absl::string_view kLetters = "kmgt";
  const std::string lower = absl::AsciiStrToLower(unit);
  if (lower.empty() || lower == "b") {
    return 1.0;
  }
  const size_t power = kLetters.find(lower[0]);
  const std::string rest = lower.substr(1);
  if (power == absl::string_view::npos || (!rest.empty() && rest != "b" && rest != "ib")) {
    return std::nullopt;
  }
  return std::pow(rest == "b" ? 1000.0 : 1024.0, static_cast<double>(power + 1));
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The number in a file; nothing for "max" or no file.
std::optional<int64_t> ReadNumber(const std::filesystem::path& path) {
  int64_t number = 0;
  return absl::SimpleAtoi(absl::StripAsciiWhitespace(ReadFile(path)), &number)
             ? std::optional<int64_t>(number)
             : std::nullopt;
}

enum class Room : uint8_t { kLeft, kInAll };

// What this process's groups and those above them leave: the least of limit - usage, or of the
// limits alone.
std::optional<int64_t> CgroupRoom(Room kind) {
  struct Files {
    const char* limit;
    const char* usage;
  };
  constexpr Files kVersions[] = {{"memory.max", "memory.current"},
                                 {"memory.limit_in_bytes", "memory.usage_in_bytes"}};
  std::optional<int64_t> room;
  for (const std::filesystem::path folder : MemoryCgroupFolders()) {
    for (const Files& files : kVersions) {
      const auto limit = ReadNumber(folder / files.limit);
      if (limit) {
        const int64_t used =
            kind == Room::kInAll ? 0 : ReadNumber(folder / files.usage).value_or(0);
        const int64_t left = std::max<int64_t>(*limit - used, 0);
        room = std::min(room.value_or(left), left);
      }
    }
  }
  return room;
}

// A value of a /proc/meminfo in bytes; `name` as "MemTotal:".
std::optional<int64_t> MemoryInfo(absl::string_view meminfo, absl::string_view name) {
  for (absl::string_view line : absl::StrSplit(meminfo, '\n')) {
    int64_t kib = 0;
    if (absl::ConsumePrefix(&line, name) && absl::ConsumeSuffix(&line, "kB") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &kib)) {
      return kib * 1024;
    }
  }
  return std::nullopt;
}

// The lesser of what the machine and the cgroups say; 1 GiB when neither says anything.
int64_t LeastOf(std::optional<int64_t> machine, std::optional<int64_t> group) {
  constexpr int64_t kFallbackBytes = int64_t{1} << 30;
  if (!machine && !group) {
    return kFallbackBytes;
  }
  return std::min(machine.value_or(INT64_MAX), group.value_or(INT64_MAX));
}

}  // namespace

absl::StatusOr<int64_t> ParseSize(absl::string_view text) {
  const absl::string_view trimmed = absl::StripAsciiWhitespace(text);
  const size_t end = std::min(trimmed.find_first_not_of("0123456789."), trimmed.size());
  double number = 0.0;
  const auto unit = UnitBytes(absl::StripAsciiWhitespace(trimmed.substr(end)));
  constexpr double kMaxBytes = 4611686018427387904.0;  // 2^62
  if (!absl::SimpleAtod(trimmed.substr(0, end), &number) || !unit || !std::isfinite(number) ||
      number * *unit > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("size \"", text, "\" must be a number with a unit, as 4GiB or 512MiB"));
  }
  return static_cast<int64_t>(number * *unit);
}

absl::Status ReadSizeFlag(absl::string_view key, absl::string_view text, int64_t& bytes) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<int64_t> size = ParseSize(text);
  if (!size.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--", key, ": ", size.status().message()));
  }
  bytes = *size;
  return absl::OkStatus();
}

std::string SizeText(int64_t bytes) {
  constexpr double kMiB = 1048576.0;
  const double mib = static_cast<double>(bytes) / kMiB;
  return mib < 1024.0 ? absl::StrFormat("%.1f MiB", mib)
                      : absl::StrFormat("%.1f GiB", mib / 1024.0);
}

std::optional<int64_t> ParseMemAvailable(absl::string_view meminfo) {
  return MemoryInfo(meminfo, "MemAvailable:");
}

int64_t AvailableMemoryBytes() {
  return LeastOf(ParseMemAvailable(ReadFile("/proc/meminfo")), CgroupRoom(Room::kLeft));
}

int64_t MemoryLimitBytes() {
  return LeastOf(MemoryInfo(ReadFile("/proc/meminfo"), "MemTotal:"), CgroupRoom(Room::kInAll));
}

}  // namespace nightshift
