// Typed reads of members of a row's JSON object. A member that is null counts as absent.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// The member, or nullptr when it is absent or null.
const nlohmann::json* FindField(const nlohmann::json& object, const char* name);

// Empty for an absent member. Errors: INVALID_ARGUMENT naming member, wanted and found type.
absl::StatusOr<std::optional<bool>> ReadBool(const nlohmann::json& object, const char* name);
absl::StatusOr<std::optional<double>> ReadNumber(const nlohmann::json& object, const char* name);
// Whole numbers written as 16 or 16.0, that fit in 64 bits.
absl::StatusOr<std::optional<int64_t>> ReadInteger(const nlohmann::json& object, const char* name);
absl::StatusOr<std::optional<std::string>> ReadText(const nlohmann::json& object, const char* name);

// One value as a whole number; `param` names it in the error.
absl::StatusOr<int64_t> AsInteger(const nlohmann::json& value, absl::string_view param);

}  // namespace nightshift
