#include "proto/nightshift/default_address.h"

#include <cstdlib>
#include <string>

namespace nightshift {
namespace {

std::string EnvironmentValue(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

bool IsAbsolute(const std::string& path) { return !path.empty() && path.front() == '/'; }

}  // namespace

std::string DefaultStateDirectory() {
  if (std::string given = EnvironmentValue("NIGHTSHIFT_STATE_DIR"); !given.empty()) {
    return given;
  }
  if (const std::string state_home = EnvironmentValue("XDG_STATE_HOME"); IsAbsolute(state_home)) {
    return state_home + "/nightshift";
  }
  if (const std::string home = EnvironmentValue("HOME"); IsAbsolute(home)) {
    return home + "/.local/state/nightshift";
  }
  return "/var/lib/nightshift";
}

std::string AddressOfStateDirectory(const std::string& state_directory) {
  return "unix:" + state_directory + "/nightshift.sock";
}

std::string DefaultAddress() { return AddressOfStateDirectory(DefaultStateDirectory()); }

}  // namespace nightshift
