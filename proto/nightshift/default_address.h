// Where daemon and client meet when nobody says otherwise.
#pragma once

#include <string>

namespace nightshift {

// The folder that holds a daemon's jobs: $NIGHTSHIFT_STATE_DIR, else $XDG_STATE_HOME/nightshift,
// else $HOME/.local/state/nightshift, else /var/lib/nightshift. As the XDG specification asks, a
// relative XDG_STATE_HOME or HOME counts as unset.
std::string DefaultStateDirectory();

// The gRPC address of the daemon whose state is in `state_directory`:
// "unix:STATE_DIRECTORY/nightshift.sock". The kernel allows a socket path of 107 bytes.
std::string AddressOfStateDirectory(const std::string& state_directory);

// AddressOfStateDirectory(DefaultStateDirectory()).
std::string DefaultAddress();

}  // namespace nightshift
