// The memory cgroups (version 2 and 1) of this process, as files.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace nightshift {

// The folders of this process's own groups, each followed by those above it to the root of its
// hierarchy. A folder may not exist: in a container a group's path may be the host's.
std::vector<std::string> MemoryCgroupFolders();

// How many processes of this process's own group the kernel has killed for want of memory, ever;
// nothing where the system does not tell.
std::optional<int64_t> CountOomKills();

}  // namespace nightshift
