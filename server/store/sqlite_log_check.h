// CheckLog: whether SQLite's log was cut off by a crash or is damaged.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace nightshift {

// SQLite reads its log up to the first frame that fails its checksum and takes the rest for what a
// crash has cut off: a flipped bit would silently undo every commit behind it. But with a sync for
// each commit only the last one can be cut off. DATA_LOSS when whole frames of a later commit stand
// behind a broken one, with the place; OK for no log. Damage in the last commit itself looks like a
// crash. Before the database at `database_path` is opened; reads the log once.
// Source: sqlite.org/fileformat2.html, section 4.
absl::Status CheckLog(const std::string& database_path);

}  // namespace nightshift
