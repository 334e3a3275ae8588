#include "client/daemon_binary.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <unistd.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr char kName[] = "nightshiftd";

std::vector<std::string> Candidates() {
  std::vector<std::string> candidates;
  std::error_code error;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error) {
    candidates.push_back((self.parent_path() / kName).string());
    candidates.push_back((self.parent_path().parent_path() / "server" / kName).string());
  }
  const char* path = std::getenv("PATH");
  for (absl::string_view folder : absl::StrSplit(path == nullptr ? "" : path, ':')) {
    if (!folder.empty()) {
      candidates.push_back(absl::StrCat(folder, "/", kName));
    }
  }
  return candidates;
}

}  // namespace

absl::StatusOr<std::string> FindDaemonBinary() {
  for (const std::string& candidate : Candidates()) {
    std::error_code error;
    if (std::filesystem::is_regular_file(candidate, error) &&
        access(candidate.c_str(), X_OK) == 0) {
      return candidate;
    }
  }
  return absl::FailedPreconditionError(absl::StrCat(
      "find ", kName, ": it is neither beside nightshift, nor in ../server of a build ",
      "tree, nor on PATH; put its folder on PATH"));
}

absl::Status ExecuteDaemonTool(const std::vector<std::string>& arguments) {
  ASSIGN_OR_RETURN(const std::string binary, FindDaemonBinary());
  std::vector<std::string> words = {binary};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> pointers;
  for (std::string& word : words) {
    pointers.push_back(word.data());
  }
  pointers.push_back(nullptr);
  execv(binary.c_str(), pointers.data());
  return ErrnoStatus("execute", binary);
}

}  // namespace nightshift
