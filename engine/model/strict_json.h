// JSON from files that nobody vouches for.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace nightshift {

// Parses one JSON object. `what` names the document in messages, which never quote its content.
// Errors: INVALID_ARGUMENT for text that is not JSON or not an object, nesting above 64, or a name
// that occurs twice in one object (parsers disagree about which one counts).
absl::StatusOr<nlohmann::json> ParseStrictJson(const std::string& text, const std::string& what);

// Reads typed members of one object. The first problem is kept and later reads return the default,
// so that a caller reads everything and asks status() once.
class JsonReader {
 public:
  // `object` must outlive the reader. `what` names the document in messages.
  JsonReader(const nlohmann::json& object, std::string what);

  // Members that are missing or null give `fallback`; those of another type, or out of
  // [low, high], are a problem.
  int64_t Integer(const char* name, int64_t low, int64_t high, int64_t fallback);
  double Number(const char* name, double low, double high, double fallback);
  bool Bool(const char* name, bool fallback);
  std::string Text(const char* name, const std::string& fallback);

  // The same for members that must be there.
  int64_t RequiredInteger(const char* name, int64_t low, int64_t high);
  double RequiredNumber(const char* name, double low, double high);
  bool RequiredBool(const char* name);
  std::string RequiredText(const char* name);

  // True when the member is there and not null.
  bool Has(const char* name) const;
  // Records a problem with a member, unless there is one already.
  void Refuse(const char* name, const std::string& problem);
  // INVALID_ARGUMENT naming document, member and problem, or OK.
  const absl::Status& status() const { return status_; }

 private:
  const nlohmann::json* Member(const char* name) const;
  void Require(const char* name);

  const nlohmann::json& object_;
  std::string what_;
  absl::Status status_;
};

}  // namespace nightshift
