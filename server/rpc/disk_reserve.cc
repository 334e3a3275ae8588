#include "server/rpc/disk_reserve.h"

#include <algorithm>

#include <sys/statvfs.h>

#include "absl/strings/str_cat.h"

#include "server/input/rpc_error.h"

namespace nightshift {

absl::Status CheckDiskReserve(const RpcContext& rpc, int64_t more_bytes) {
  constexpr int64_t kLeastDefault = int64_t{2} << 30;
  constexpr int64_t kDefaultShare = 20;
  constexpr int64_t kRetryDelayMs = 30'000;
  struct statvfs disk = {};
  if (rpc.limits.disk_reserve_bytes == 0 ||
      ::statvfs(rpc.uploads_directory.c_str(), &disk) != 0) {
    return absl::OkStatus();
  }
  const auto block_bytes = static_cast<int64_t>(disk.f_frsize);
  const int64_t free_bytes = static_cast<int64_t>(disk.f_bavail) * block_bytes;
  const int64_t all_bytes = static_cast<int64_t>(disk.f_blocks) * block_bytes;
  const int64_t reserve_bytes = rpc.limits.disk_reserve_bytes > 0
                                    ? rpc.limits.disk_reserve_bytes
                                    : std::max(all_bytes / kDefaultShare, kLeastDefault);
  if (free_bytes - more_bytes >= reserve_bytes) {
    return absl::OkStatus();
  }
  return WithRetryDelay(
      MakeError(absl::StatusCode::kResourceExhausted, reason::kDiskReserve,
                absl::StrCat("the disk of the state directory has ", free_bytes,
                             " bytes left, of which ", reserve_bytes,
                             " are kept for jobs that were accepted; delete jobs or free space"),
                {{"free", absl::StrCat(free_bytes)}, {"reserve", absl::StrCat(reserve_bytes)}}),
      kRetryDelayMs);
}

}  // namespace nightshift
