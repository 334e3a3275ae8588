#include "server/store/disk_room.h"

#include <algorithm>

#include <sys/statvfs.h>

namespace nightshift {

std::optional<DiskRoom> ReadDiskRoom(const std::string& path, int64_t reserve_bytes) {
  constexpr int64_t kLeastDefault = int64_t{2} << 30;
  constexpr int64_t kDefaultShare = 20;
  struct statvfs disk = {};
  if (reserve_bytes == 0 || ::statvfs(path.c_str(), &disk) != 0) {
    return std::nullopt;
  }
  const auto block_bytes = static_cast<int64_t>(disk.f_frsize);
  const int64_t all_bytes = static_cast<int64_t>(disk.f_blocks) * block_bytes;
  return DiskRoom{.free_bytes = static_cast<int64_t>(disk.f_bavail) * block_bytes,
                  .reserve_bytes = reserve_bytes > 0
                                       ? reserve_bytes
                                       : std::max(all_bytes / kDefaultShare, kLeastDefault)};
}

}  // namespace nightshift
