// DiskRoom: how much of a disk is free, and how much of that is kept for jobs that were accepted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace nightshift {

struct DiskRoom {
  int64_t free_bytes = 0;
  int64_t reserve_bytes = 0;

  bool HasFor(int64_t more_bytes) const { return free_bytes - more_bytes >= reserve_bytes; }
};

// Of the disk of `path`. `reserve_bytes`: -1 for the larger of 5 % and 2 GiB, 0 for none. Nothing
// when there is no reserve or the filesystem does not tell.
std::optional<DiskRoom> ReadDiskRoom(const std::string& path, int64_t reserve_bytes);

}  // namespace nightshift
