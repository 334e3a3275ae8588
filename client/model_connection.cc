#include "client/model_connection.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <vector>

#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

#include "client/private_daemon.h"
#include "client/served_pack.h"
#include "client/submission.h"
#include "kernels/base/file_descriptor.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Of a private daemon that nobody continues: nothing to resume, nothing to keep.
absl::StatusOr<std::string> ScratchStateDirectory() {
  std::string path = "/var/tmp/nightshift-XXXXXX";
  if (mkdtemp(path.data()) == nullptr) {
    return ErrnoStatus("make folder", path);
  }
  // The daemon makes its folder itself; the name is what was needed.
  rmdir(path.c_str());
  return path;
}

absl::Status CheckServesPack(Session& session, const std::string& pack) {
  ASSIGN_OR_RETURN(const std::string digest, PackDigest(pack));
  ASSIGN_OR_RETURN(const std::vector<v1::Model> models, session.client().ListModels());
  return CheckServed(models, ModelName(pack), digest, pack);
}

}  // namespace

bool IsPack(const std::string& model) {
  std::error_code error;
  return absl::StrContains(model, '/') || std::filesystem::is_directory(model, error);
}

absl::Status ConnectForOutput(Session& session) {
  const CommandLine& line = session.line();
  const std::string state_directory =
      line.output == "-" ? std::string() : PrivateStateDirectoryOf(line.output);
  const bool continues =
      IsPack(line.model) && !state_directory.empty() && IsPrivateStateDirectory(state_directory);
  return ConnectToModel(session, {.option = "--model",
                                  .model = line.model,
                                  .is_private = line.private_daemon || continues,
                                  .state_directory = state_directory});
}

absl::Status ConnectToModel(Session& session, const ModelConnection& wanted) {
  const bool has_pack = IsPack(wanted.model);
  std::error_code error;
  if (has_pack && !std::filesystem::is_directory(wanted.model, error)) {
    return absl::NotFoundError(absl::StrCat(wanted.option, " ", wanted.model,
                                            ": no such pack; `nightshift models` lists what the "
                                            "daemon serves, `nightshift import` makes a pack"));
  }
  if (!wanted.is_private) {
    const absl::Status connected = session.Connect(kLongPatience);
    if (connected.ok() && has_pack) {
      return CheckServesPack(session, wanted.model);
    }
    if (connected.ok() || !has_pack || connected.code() != absl::StatusCode::kUnavailable) {
      return connected;
    }
  }
  std::string state_directory = wanted.state_directory;
  if (state_directory.empty()) {
    ASSIGN_OR_RETURN(state_directory, ScratchStateDirectory());
  }
  session.console().Note(
      absl::StrCat("starting a private daemon for this run with ", wanted.model));
  return session.ConnectPrivate({wanted.model, state_directory});
}

}  // namespace nightshift
