// One member of a line of JSON as JSON text of its own, names in the line's order.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace nightshift {

// The value at `path` (names of objects inside each other), written anew: names in their order,
// whole numbers exactly. Of a name that occurs twice the last value counts. Empty if there is none.
// `line` has passed ParseJsonLine, so it is one JSON object whose nesting is bounded.
std::string MemberText(absl::string_view line, const std::vector<std::string>& path);

}  // namespace nightshift
