#include "engine/model/strict_json.h"

#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 64;

// Watches a parse for what nlohmann's tree cannot show: repeated names, and depth before the tree
// grows deep (its serialiser is recursive).
class ParseWatch {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    switch (event) {
      case Json::parse_event_t::object_start:
        names_.emplace_back();
        break;
      case Json::parse_event_t::object_end:
        names_.pop_back();
        break;
      case Json::parse_event_t::key:
        repeated_ = !names_.back().insert(parsed.get<std::string>()).second || repeated_;
        break;
      default:
        break;
    }
    deep_ = deep_ || depth > kMaxDepth;
    return depth <= kMaxDepth;
  }
  bool repeated() const { return repeated_; }
  bool deep() const { return deep_; }

 private:
  std::vector<std::set<std::string>> names_;
  bool repeated_ = false;
  bool deep_ = false;
};

}  // namespace

absl::StatusOr<Json> ParseStrictJson(const std::string& text, const std::string& what) {
  ParseWatch watch;
  Json parsed = Json::parse(text, std::ref(watch), /*allow_exceptions=*/false);
  if (watch.deep()) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, ": nested deeper than ", kMaxDepth, " levels"));
  }
  if (watch.repeated()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": a name occurs twice in one object"));
  }
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

bool JsonReader::Has(const char* name) const { return Member(name) != nullptr; }

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
  const bool fits = member->is_number_integer() &&
                    !(member->is_number_unsigned() &&
                      member->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
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
