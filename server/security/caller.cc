#include "server/security/caller.h"

namespace nightshift {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kReader:
      return "reader";
    case Role::kSubmitter:
      return "submitter";
    case Role::kAdmin:
      return "admin";
  }
  return "";
}

std::optional<Role> RoleNamed(absl::string_view name) {
  for (const Role role : {Role::kReader, Role::kSubmitter, Role::kAdmin}) {
    if (name == RoleName(role)) {
      return role;
    }
  }
  return std::nullopt;
}

}  // namespace nightshift
