// The page that people read: what the daemon is doing, as one static HTML document.
#pragma once

#include <string>
#include <vector>

#include "absl/strings/string_view.h"

#include "kernels/base/log_format.h"
#include "server/http/daemon_status.h"

namespace nightshift {

// Without scripts, links or anything from elsewhere; made anew every 10 s by the browser. What came
// from callers and files is escaped. `problems`: the last warnings and errors of the log.
std::string StatusPage(const DaemonStatus& status, const std::vector<LoggedLine>& problems);

// The text as HTML shows it, in text and in quoted attributes; control characters as \x1b, bytes
// that are no UTF-8 as '?'.
std::string EscapeHtml(absl::string_view text);

}  // namespace nightshift
