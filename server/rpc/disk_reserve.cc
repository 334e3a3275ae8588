#include "server/rpc/disk_reserve.h"

#include <optional>

#include "absl/strings/str_cat.h"

#include "server/input/rpc_error.h"
#include "server/store/disk_room.h"

namespace nightshift {

absl::Status CheckDiskReserve(const RpcContext& rpc, int64_t more_bytes) {
  constexpr int64_t kRetryDelayMs = 30'000;
  if (const absl::Status full = rpc.disk.CheckRoom(); !full.ok()) {
    return WithRetryDelay(MakeError(full.code(), reason::kDiskFull, full.message(), {}),
                          kRetryDelayMs);
  }
  const std::optional<DiskRoom> room =
      ReadDiskRoom(rpc.uploads_directory, rpc.limits.disk_reserve_bytes);
  if (!room.has_value() || room->HasFor(more_bytes)) {
    return absl::OkStatus();
  }
  return WithRetryDelay(
      MakeError(
          absl::StatusCode::kResourceExhausted, reason::kDiskReserve,
          absl::StrCat("the disk of the state directory has ", room->free_bytes,
                       " bytes left, of which ", room->reserve_bytes,
                       " are kept for jobs that were accepted; delete jobs or free space"),
          {{"free", absl::StrCat(room->free_bytes)}, {"reserve", absl::StrCat(room->reserve_bytes)}}),
      kRetryDelayMs);
}

}  // namespace nightshift
