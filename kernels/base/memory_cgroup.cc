#include "kernels/base/memory_cgroup.h"

#include <filesystem>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

#include "kernels/base/file_descriptor.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxFileBytes = 1 << 20;

void AppendUpwards(const std::filesystem::path& root, absl::string_view group,
                   std::vector<std::string>& folders) {
  std::filesystem::path folder =
      root / std::filesystem::path(std::string(group)).relative_path();
  for (; folder != root && folder != folder.parent_path(); folder = folder.parent_path()) {
    folders.push_back(folder.string());
  }
  folders.push_back(root.string());
}

// Of a file of lines "name number".
std::optional<int64_t> ReadCount(const std::string& path, absl::string_view name) {
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes);
  if (!text.ok()) {
    return std::nullopt;
  }
  for (absl::string_view line : absl::StrSplit(*text, '\n')) {
    int64_t count = 0;
    if (absl::ConsumePrefix(&line, name) && absl::ConsumePrefix(&line, " ") &&
        absl::SimpleAtoi(absl::StripAsciiWhitespace(line), &count)) {
      return count;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::string> MemoryCgroupFolders() {
  const std::filesystem::path root = "/sys/fs/cgroup";
  std::vector<std::string> folders;
  const absl::StatusOr<std::string> groups = ReadSmallFile("/proc/self/cgroup", kMaxFileBytes);
  if (!groups.ok()) {
    return folders;
  }
  for (const absl::string_view line : absl::StrSplit(*groups, '\n')) {
    const std::vector<absl::string_view> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() != 3) {
      continue;
    }
    if (parts[1].empty()) {
      AppendUpwards(root, parts[2], folders);
    } else if (parts[1] == "memory") {
      AppendUpwards(root / "memory", parts[2], folders);
    }
  }
  return folders;
}

std::optional<int64_t> CountOomKills() {
  for (const std::string& folder : MemoryCgroupFolders()) {
    for (const char* file : {"/memory.events", "/memory.oom_control"}) {
      const std::optional<int64_t> count = ReadCount(folder + file, "oom_kill");
      if (count.has_value()) {
        return count;
      }
    }
  }
  return std::nullopt;
}

}  // namespace nightshift
