// Files for people that appear whole or not at all, and in place of another only where that is asked.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// OK when nothing is at `path`. Errors: ALREADY_EXISTS; as errno.
absl::Status CheckNoFile(const std::string& path);

// Makes a file of these bytes: written aside as PATH.part, synced, renamed. Errors: as CheckNoFile;
// RESOURCE_EXHAUSTED (disk full); as errno. Nothing is left behind by an error.
absl::Status WriteNewFile(const std::string& path, absl::string_view bytes);

// The same in place of what is at `path`, if there is something: a reader sees the old bytes or the
// new ones.
absl::Status ReplaceFile(const std::string& path, absl::string_view bytes);

// Whether ReplaceFile could write to `path`, found out by making PATH.part and removing it; what is
// at `path` stays. For asking before long work whose result goes there. Errors: as errno.
absl::Status CheckWritable(const std::string& path);

}  // namespace nightshift
