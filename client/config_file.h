// client.toml: what a user keeps there is named in no command: where the daemon is and who calls it. Its
// keys are options without their dashes: address, token-file, ca, client-cert, client-key.
#pragma once

#include <string>

#include "absl/status/status.h"

#include "client/credentials.h"

namespace nightshift {

// $XDG_CONFIG_HOME/nightshift/client.toml, else $HOME/.config/nightshift/client.toml; empty where neither
// is an absolute path.
std::string ConfigFilePath();

// Fills what is empty yet, as given neither by an option nor by a variable. A file that is not there says
// nothing. Errors, naming the file: INVALID_ARGUMENT (an unknown key, no text, a path that is not
// absolute), or as ErrnoStatus.
absl::Status ReadConfigFile(const std::string& path, std::string& address,
                            CredentialFiles& credentials);

}  // namespace nightshift
