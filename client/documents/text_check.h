// Is it text? Documents are UTF-8, with or without a byte order mark. Pure.
#pragma once

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "client/documents/document.h"

namespace nightshift {

// Removes a byte order mark, and says what else is wrong: another encoding (named where its mark
// tells), a NUL byte or invalid UTF-8 (with the offset in `text` as it came). `what` begins the
// message.
std::optional<DocumentError> CleanText(absl::string_view what, std::string& text);

// A name as valid UTF-8: other bytes, which names of files may have, become \xHH.
std::string ReadableName(absl::string_view name);

}  // namespace nightshift
