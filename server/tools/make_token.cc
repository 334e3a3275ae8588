#include "server/tools/make_token.h"

#include <optional>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "server/security/access_list.h"
#include "server/security/identifiers.h"

namespace nightshift {
namespace {

constexpr int64_t kMicrosPerSecond = 1'000'000;
constexpr int64_t kSecondsPerDay = 24 * 3600;
constexpr int64_t kMaxDays = 36500;

}  // namespace

std::string TokenJson(const NewToken& made) {
  const nlohmann::ordered_json json = {{"token", made.token}, {"access_line", made.access_line}};
  return json.dump() + "\n";
}

absl::StatusOr<NewToken> CreateToken(const MakeTokenOptions& options, int64_t now_us) {
  if (!IsTenant(options.tenant)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--tenant is \"", options.tenant, "\", must be of [a-z0-9-]{1,63}"));
  }
  const std::optional<Role> role = RoleNamed(options.role);
  if (!role.has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("--role is \"", options.role, "\", must be reader, submitter or admin"));
  }
  if (options.days < 0 || options.days > kMaxDays) {
    return absl::InvalidArgumentError(
        absl::StrCat("--days is ", options.days, ", must be 0 to ", kMaxDays));
  }
  const int64_t end_s = now_us / kMicrosPerSecond + options.days * kSecondsPerDay;
  NewToken made;
  made.token = MakeToken();
  made.access_line = AccessLine(made.token, {.tenant = options.tenant, .role = *role},
                                options.days == 0 ? kNeverExpires : end_s * kMicrosPerSecond);
  return made;
}

}  // namespace nightshift
