// The fields of one line of JSON: an object, or a result of an earlier job. Pure.
//
// A result line, as `nightshift run` and `results` write it, has the fields "id" and "output": the
// text, or the best of scored choices. Of any other object each member is a field: strings as they
// are, other values as JSON.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "client/documents/document.h"

namespace nightshift {

inline constexpr char kOutputField[] = "output";

struct JsonRecord {
  std::vector<DocumentField> fields;
  std::optional<DocumentError> error;  // `fields` may have the id all the same
};

// `what` begins the message of an error: "data.jsonl: line 7".
JsonRecord ReadJsonRecord(absl::string_view what, absl::string_view line);

}  // namespace nightshift
