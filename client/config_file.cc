#include "client/config_file.h"

#include <cstdint>
#include <cstdlib>
#include <map>
#include <sstream>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxConfigBytes = 1 << 20;
constexpr char kAddress[] = "address";

std::string FolderOf(const char* variable, const char* rest) {
  const char* const value = std::getenv(variable);
  return value != nullptr && *value == '/' ? absl::StrCat(value, rest) : "";
}

absl::Status Wrong(const std::string& path, const std::string& key, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", key, " ", what));
}

}  // namespace

std::string ConfigFilePath() {
  constexpr char kFile[] = "/nightshift/client.toml";
  std::string path = FolderOf("XDG_CONFIG_HOME", kFile);
  return path.empty() ? FolderOf("HOME", absl::StrCat("/.config", kFile).c_str()) : path;
}

absl::Status ReadConfigFile(const std::string& path, std::string& address,
                            CredentialFiles& credentials) {
  if (path.empty()) {
    return absl::OkStatus();
  }
  const absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxConfigBytes);
  if (absl::IsNotFound(text.status())) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(text.status());
  const std::map<std::string, std::string*> targets = {
      {kAddress, &address},
      {"token-file", &credentials.token},
      {"ca", &credentials.ca},
      {"client-cert", &credentials.client_certificate},
      {"client-key", &credentials.client_key}};
  std::istringstream lines(*text);
  for (const CLI::ConfigItem& item : CLI::ConfigTOML().from_config(lines)) {
    // A section has no place here either.
    const std::string key = item.parents.empty() ? item.name : item.parents[0];
    const auto target = targets.find(key);
    if (target == targets.end()) {
      return Wrong(path, key,
                   "is no key of it; there are address, token-file, ca, client-cert, client-key");
    }
    if (item.inputs.size() != 1 || item.inputs[0].empty()) {
      return Wrong(path, key, "must be one text in quotes");
    }
    if (key != kAddress && !absl::StartsWith(item.inputs[0], "/")) {
      return Wrong(path, key, absl::StrCat("is ", item.inputs[0], ", must be an absolute path"));
    }
    if (target->second->empty()) {
      *target->second = item.inputs[0];
    }
  }
  return absl::OkStatus();
}

}  // namespace nightshift
