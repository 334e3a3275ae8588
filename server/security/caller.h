// Caller: who makes a call, as far as the daemon cares.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

// Each role may do what the ones before it may.
enum class Role : uint8_t {
  kReader = 0,     // look at jobs and results
  kSubmitter = 1,  // make, change and delete jobs
  kAdmin = 2,      // the daemon itself: drain, back up, timeline
};

// "reader", and back; nothing for another word.
absl::string_view RoleName(Role role);
std::optional<Role> RoleNamed(absl::string_view name);

// Whose the jobs are where nobody says: of a daemon without an access file.
inline constexpr char kDefaultTenant[] = "default";

struct Caller {
  std::string tenant = kDefaultTenant;
  Role role = Role::kAdmin;
};

}  // namespace nightshift
