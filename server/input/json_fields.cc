#include "server/input/json_fields.h"

#include <cmath>

#include <nlohmann/json.hpp>

#include "server/input/row_error.h"

namespace nightshift {

using nlohmann::json;

const json* FindField(const json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

absl::StatusOr<std::optional<bool>> ReadBool(const json& object, const char* name) {
  const json* field = FindField(object, name);
  if (field == nullptr) {
    return std::optional<bool>();
  }
  if (!field->is_boolean()) {
    return WrongType(name, "true or false", field->type_name());
  }
  return std::optional<bool>(field->get<bool>());
}

absl::StatusOr<std::optional<double>> ReadNumber(const json& object, const char* name) {
  const json* field = FindField(object, name);
  if (field == nullptr) {
    return std::optional<double>();
  }
  if (!field->is_number()) {
    return WrongType(name, "a number", field->type_name());
  }
  return std::optional<double>(field->get<double>());
}

absl::StatusOr<int64_t> AsInteger(const json& value, absl::string_view param) {
  if (value.is_number_unsigned()) {
    if (value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
      return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, param,
                      "does not fit in 64 bits");
    }
    return value.get<int64_t>();
  }
  if (value.is_number_integer()) {
    return value.get<int64_t>();
  }
  if (!value.is_number_float()) {
    return WrongType(param, "a whole number", value.type_name());
  }
  const double number = value.get<double>();
  constexpr double kExactBound = 9007199254740992.0;  // 2^53: above it doubles skip whole numbers
  if (std::trunc(number) != number) {
    return WrongType(param, "a whole number", "a fraction");
  }
  if (std::fabs(number) > kExactBound) {
    return RowError(reason::kFieldOutOfRange, row_code::kInvalidValue, param,
                    "does not fit in 64 bits");
  }
  return static_cast<int64_t>(number);
}

absl::StatusOr<std::optional<int64_t>> ReadInteger(const json& object, const char* name) {
  const json* field = FindField(object, name);
  if (field == nullptr) {
    return std::optional<int64_t>();
  }
  auto value = AsInteger(*field, name);
  if (!value.ok()) {
    return value.status();
  }
  return std::optional<int64_t>(*value);
}

absl::StatusOr<std::optional<std::string>> ReadText(const json& object, const char* name) {
  const json* field = FindField(object, name);
  if (field == nullptr) {
    return std::optional<std::string>();
  }
  if (!field->is_string()) {
    return WrongType(name, "a string", field->type_name());
  }
  return std::optional<std::string>(field->get_ref<const std::string&>());
}

}  // namespace nightshift
