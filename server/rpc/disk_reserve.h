// The part of the disk that new jobs must leave free, so that those which are there can end.
#pragma once

#include <cstdint>

#include "absl/status/status.h"

#include "server/rpc/rpc_context.h"

namespace nightshift {

// RESOURCE_EXHAUSTED with a retry delay: DISK_FULL while the disk is, DISK_RESERVE when `more_bytes`
// would leave less than the reserve. OK when the disk does not tell.
absl::Status CheckDiskReserve(const RpcContext& rpc, int64_t more_bytes);

}  // namespace nightshift
