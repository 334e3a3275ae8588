#include "engine/text/json_fields.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace nightshift {
namespace {

using nlohmann::json;

absl::Status WrongType(const char* name, absl::string_view wanted, const json& found) {
  return absl::InvalidArgumentError(
      absl::StrCat("field ", name, ": ", wanted, " wanted, found ", found.type_name()));
}

const json* Present(const json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto field = object.find(name);
  return field == object.end() || field->is_null() ? nullptr : &*field;
}

}  // namespace

bool IsInt32(const json& value) {
  if (value.is_number_unsigned()) {
    return value.get<uint64_t>() <= uint64_t{std::numeric_limits<int32_t>::max()};
  }
  if (!value.is_number_integer()) return false;
  const int64_t number = value.get<int64_t>();
  return number >= std::numeric_limits<int32_t>::min() &&
         number <= std::numeric_limits<int32_t>::max();
}

absl::Status ReadField(const json& object, const char* name, bool& value) {
  const json* field = Present(object, name);
  if (field == nullptr) return absl::OkStatus();
  if (!field->is_boolean()) return WrongType(name, "a boolean", *field);
  value = field->get<bool>();
  return absl::OkStatus();
}

absl::Status ReadField(const json& object, const char* name, int32_t& value) {
  const json* field = Present(object, name);
  if (field == nullptr) return absl::OkStatus();
  if (!IsInt32(*field)) return WrongType(name, "a 32-bit whole number", *field);
  value = field->get<int32_t>();
  return absl::OkStatus();
}

absl::Status ReadField(const json& object, const char* name, std::string& value) {
  const json* field = Present(object, name);
  if (field == nullptr) return absl::OkStatus();
  if (!field->is_string()) return WrongType(name, "a string", *field);
  value = field->get_ref<const std::string&>();
  return absl::OkStatus();
}

absl::Status ReadField(const json& object, const char* name, json::value_t wanted,
                       const json*& value) {
  value = Present(object, name);
  if (value == nullptr || value->type() == wanted) return absl::OkStatus();
  return WrongType(name, json(wanted).type_name(), *value);
}

}  // namespace nightshift
