// Typed reading of JSON objects from files nobody vouches for.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"

namespace nightshift {

// Each reads field `name` of `object` into `value`; an absent or null field leaves `value` as it
// is. Errors: INVALID_ARGUMENT naming the field, what was wanted and what is there.
absl::Status ReadField(const nlohmann::json& object, const char* name, bool& value);
absl::Status ReadField(const nlohmann::json& object, const char* name, int32_t& value);
absl::Status ReadField(const nlohmann::json& object, const char* name, std::string& value);

// A field that must be an array, or an object, as a pointer; nullptr if absent or null.
absl::Status ReadField(const nlohmann::json& object, const char* name,
                       nlohmann::json::value_t wanted, const nlohmann::json*& value);

// A whole number that fits into int32.
bool IsInt32(const nlohmann::json& value);

}  // namespace nightshift
