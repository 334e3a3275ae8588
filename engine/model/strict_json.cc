#include "engine/model/strict_json.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxDepth = 64;

// Walks a document without building it and stops at the first thing that the tree would hide
// (repeated names) or that would make later recursion over it dangerous (depth).
class StructureCheck : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return Enter(); }
  bool end_object() override { return Leave(); }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override { return Leave(); }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second) {
      problem_ = "a name occurs twice in one object";
      return false;
    }
    return true;
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    problem_ = absl::StrCat("not JSON at byte ", position);
    return false;
  }
  const std::string& problem() const { return problem_; }

 private:
  bool Enter() {
    names_.emplace_back();
    if (names_.size() > kMaxDepth) {
      problem_ = absl::StrCat("nested deeper than ", kMaxDepth, " levels");
      return false;
    }
    return true;
  }
  bool Leave() {
    names_.pop_back();
    return true;
  }

  std::vector<std::set<std::string>> names_;  // of each open object; unused for arrays
  std::string problem_;
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(const std::string& text, const std::string& what) {
  StructureCheck check;
  if (!Json::sax_parse(text, &check)) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", check.problem()));
  }
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": not a JSON object (", text.size(), " bytes)"));
  }
  return parsed;
}

JsonReader::JsonReader(const Json& object, std::string what)
    : object_(object), what_(std::move(what)) {}

const Json* JsonReader::Member(const char* name) const {
  const auto member = object_.find(name);
  return member == object_.end() || member->is_null() ? nullptr : &*member;
}

bool JsonReader::Has(const char* name) const {
  return Member(name) != nullptr;
}

void JsonReader::Refuse(const char* name, const std::string& problem) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat(what_, ": ", name, " ", problem));
  }
}

void JsonReader::Require(const char* name) {
  if (!Has(name)) {
    Refuse(name, "is missing");
  }
}

int64_t JsonReader::Integer(const char* name, int64_t low, int64_t high, int64_t fallback) {
  const Json* member = Member(name);
  if (member == nullptr) {
    return fallback;
  }
  // Unsigned numbers above the signed range would wrap around in get<int64_t>.
  const bool fits =
      member->is_number_integer() &&
      !(member->is_number_unsigned() && member->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  if (!fits || member->get<int64_t>() < low || member->get<int64_t>() > high) {
    Refuse(name, absl::StrCat("is not an integer from ", low, " to ", high));
    return fallback;
  }
  return member->get<int64_t>();
}

double JsonReader::Number(const char* name, double low, double high, double fallback) {
  const Json* member = Member(name);
  if (member == nullptr) {
    return fallback;
  }
  const double value = member->is_number() ? member->get<double>() : std::nan("");
  if (!(value >= low && value <= high)) {
    Refuse(name, absl::StrCat("is not a number from ", low, " to ", high));
    return fallback;
  }
  return value;
}

bool JsonReader::Bool(const char* name, bool fallback) {
  const Json* member = Member(name);
  if (member == nullptr) {
    return fallback;
  }
  if (!member->is_boolean()) {
    Refuse(name, "is not true or false");
    return fallback;
  }
  return member->get<bool>();
}

std::string JsonReader::Text(const char* name, const std::string& fallback) {
  const Json* member = Member(name);
  if (member == nullptr) {
    return fallback;
  }
  if (!member->is_string()) {
    Refuse(name, "is not a string");
    return fallback;
  }
  return member->get<std::string>();
}

int64_t JsonReader::RequiredInteger(const char* name, int64_t low, int64_t high) {
  Require(name);
  return Integer(name, low, high, low);
}

double JsonReader::RequiredNumber(const char* name, double low, double high) {
  Require(name);
  return Number(name, low, high, low);
}

bool JsonReader::RequiredBool(const char* name) {
  Require(name);
  return Bool(name, false);
}

std::string JsonReader::RequiredText(const char* name) {
  Require(name);
  return Text(name, "");
}

}  // namespace nightshift
