#include "client/served_pack.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr int64_t kMaxManifestBytes = 256 << 20;

}  // namespace

absl::StatusOr<std::string> PackDigest(const std::string& path) {
  const std::string manifest = path + "/manifest.json";
  ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(manifest, kMaxManifestBytes));
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object() || !json.contains("digest") || !json["digest"].is_string()) {
    return absl::InvalidArgumentError(
        absl::StrCat("read ", manifest,
                     ": states no digest, so this is no pack; `nightshift import` makes one"));
  }
  return json["digest"].get<std::string>();
}

absl::Status CheckServed(const std::vector<v1::Model>& models, const std::string& name,
                         const std::string& digest, const std::string& path) {
  std::string namesake;
  for (const v1::Model& model : models) {
    if (model.digest() == digest) {
      return model.name() == name
                 ? absl::OkStatus()
                 : absl::FailedPreconditionError(absl::StrCat(
                       "use pack ", path, ": the daemon that listens serves it as ", model.name(),
                       "; say --model ", model.name()));
    }
    if (model.name() == name) {
      namesake = model.digest();
    }
  }
  const std::string how = "; add --private to start a daemon with this pack for this run";
  if (!namesake.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("use pack ", path, " (digest ", digest, "): what the daemon that listens calls ",
                     name, " is another pack (digest ", namesake, ")", how));
  }
  return absl::FailedPreconditionError(absl::StrCat("use pack ", path,
                                                    ": the daemon that listens does not serve it "
                                                    "(`nightshift models` lists what it serves)",
                                                    how));
}

}  // namespace nightshift
