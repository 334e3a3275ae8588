// PrintableText: text from elsewhere (names in files, paths, messages) as a terminal may show it.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace nightshift {

enum class LineBreaks { kKeep, kEscape };

// The text with its control characters, which could move a cursor or forge a line, as \x1b. Bytes
// that are no UTF-8 stay.
std::string PrintableText(absl::string_view text, LineBreaks line_breaks);

}  // namespace nightshift
