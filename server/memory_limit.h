// How much memory this process may use: the machine's, or its cgroup's when that is less.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace nightshift {

// "4GiB", "1.5 GB", "512MiB", "64k" or bytes. KiB, MiB, GiB, TiB and k, M, G, T are powers of 1024;
// kB, MB, GB, TB powers of 1000. INVALID_ARGUMENT for anything else, negative or above 2^62.
absl::StatusOr<int64_t> ParseSize(absl::string_view text);

// Reads the text of flag --`key` into `bytes`, which stay as they are when it is empty. Errors: of
// ParseSize, naming the flag.
absl::Status ReadSizeFlag(absl::string_view key, absl::string_view text, int64_t& bytes);

// "4.0 GiB".
std::string SizeText(int64_t bytes);

// MemAvailable of a /proc/meminfo.
std::optional<int64_t> ParseMemAvailable(absl::string_view meminfo);

// Bytes that this process may still take: MemAvailable, or what the cgroups (version 2 and 1) above
// it leave, whichever is less. 1 GiB when the system tells nothing.
int64_t AvailableMemoryBytes();

// Bytes that this process may take in all: the machine's memory, or the least limit of the cgroups
// above it. Unlike what is available it does not change while other processes come and go.
int64_t MemoryLimitBytes();

}  // namespace nightshift
