#include "engine/policy/machine.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

std::string ReadSystemFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// The first "model name" of a /proc/cpuinfo; elsewhere than on x86 there is none.
std::string CpuName() {
  for (const absl::string_view line : absl::StrSplit(ReadSystemFile("/proc/cpuinfo"), '\n')) {
    if (absl::StartsWith(line, "model name")) {
      return std::string(absl::StripAsciiWhitespace(line.substr(line.find(':') + 1)));
    }
  }
  return "unknown";
}

// As the kernel writes blanks in mountinfo: "\040".
std::string Unescaped(absl::string_view text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_octal = [&](size_t at) { return text[at] >= '0' && text[at] <= '7'; };
    if (text[i] == '\\' && i + 3 < text.size() && is_octal(i + 1) && is_octal(i + 2) &&
        is_octal(i + 3)) {
      result += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 +
                                  (text[i + 3] - '0'));
      i += 3;
    } else {
      result += text[i];
    }
  }
  return result;
}

bool IsWithin(absl::string_view path, absl::string_view folder) {
  return folder == "/" || path == folder || absl::StartsWith(path, absl::StrCat(folder, "/"));
}

}  // namespace

std::string FileSystemOf(absl::string_view mountinfo, absl::string_view path) {
  // ID PARENT MAJOR:MINOR ROOT MOUNT_POINT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS. Of two at one
  // place the later one hides the other.
  std::string found = "unknown";
  size_t length = 0;
  for (const absl::string_view line : absl::StrSplit(mountinfo, '\n')) {
    const std::vector<absl::string_view> halves = absl::StrSplit(line, absl::MaxSplits(" - ", 1));
    if (halves.size() != 2) {
      continue;
    }
    const std::vector<absl::string_view> mount = absl::StrSplit(halves[0], ' ');
    const std::vector<absl::string_view> type = absl::StrSplit(halves[1], ' ');
    if (mount.size() < 5 || type.size() < 2) {
      continue;
    }
    const std::string place = Unescaped(mount[4]);
    if (IsWithin(path, place) && place.size() >= length) {
      length = place.size();
      found = absl::StrCat(type[0], " ", Unescaped(type[1]));
    }
  }
  return found;
}

absl::StatusOr<MachineFacts> ThisMachine(const std::string& device_description,
                                         int64_t memory_limit_bytes, const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("look for the disk of ", folder, ": ", error.message()));
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<DiskQueue> queue, DiskQueue::Create({}));
  return MachineFacts{.cpu = CpuName(),
                      .device = device_description,
                      .memory_bytes = memory_limit_bytes,
                      .disk = FileSystemOf(ReadSystemFile("/proc/self/mountinfo"), path.string()),
                      .disk_backend = queue->backend()};
}

std::string Fingerprint(const MachineFacts& facts) {
  std::vector<std::string> lines = {absl::StrCat("processor: ", facts.cpu)};
  if (!facts.device.empty()) {
    lines.push_back(absl::StrCat("device: ", facts.device));
  }
  lines.push_back(absl::StrFormat(
      "memory: %.1f GiB", static_cast<double>(facts.memory_bytes) / (1024.0 * 1024.0 * 1024.0)));
  lines.push_back(absl::StrCat("disk: ", facts.disk));
  lines.push_back(absl::StrCat("disk transfers: ", DiskBackendName(facts.disk_backend)));
  return absl::StrJoin(lines, "\n");
}

std::string FingerprintDifference(absl::string_view before, absl::string_view now) {
  const std::vector<absl::string_view> old_lines = absl::StrSplit(before, '\n');
  std::vector<std::string> differences;
  for (const absl::string_view line : absl::StrSplit(now, '\n')) {
    const size_t colon = line.find(": ");
    if (colon == absl::string_view::npos) {
      continue;
    }
    const absl::string_view name = line.substr(0, colon + 2);
    absl::string_view old_value = "not known";
    for (const absl::string_view old_line : old_lines) {
      if (absl::StartsWith(old_line, name)) {
        old_value = old_line.substr(name.size());
      }
    }
    const absl::string_view value = line.substr(name.size());
    if (value != old_value) {
      differences.push_back(
          absl::StrCat(name.substr(0, colon), " was ", old_value, ", is ", value));
    }
  }
  return absl::StrJoin(differences, "; ");
}

}  // namespace nightshift
