#include "server/rpc/status_bridge.h"

#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/log.h"
#include "server/input/rpc_error.h"
#include "server/security/digest.h"

namespace nightshift {
namespace {

constexpr int64_t kRetryDelayMs = 2000;
// A person undoes it.
constexpr int64_t kDrainedRetryDelayMs = 60'000;

}  // namespace

grpc::Status ToGrpcStatus(const absl::Status& status) {
  if (status.ok()) {
    return grpc::Status::OK;
  }
  absl::Status told = status;
  if (absl::IsInternal(status) || absl::IsUnknown(status)) {
    const std::string incident = absl::BytesToHexString(RandomBytes(8));
    LOG(ERROR) << "rpc_internal_error incident=" << incident << " status=" << status.ToString();
    told = MakeError(absl::StatusCode::kInternal, reason::kInternal,
                     absl::StrCat("internal error, incident ", incident, " in the daemon's log"),
                     {{"incident", incident}});
  }
  if ((absl::IsUnavailable(told) || absl::IsResourceExhausted(told)) && !HasRetryDelay(told)) {
    told = WithRetryDelay(told, kRetryDelayMs);
  }
  const google::rpc::Status wire = ToRpcStatus(told);
  return {static_cast<grpc::StatusCode>(wire.code()), wire.message(), wire.SerializeAsString()};
}

void AddRetryMetadata(const absl::Status& status, grpc::CallbackServerContext& context) {
  if (absl::IsUnavailable(status)) {
    const bool is_drained = ErrorReason(status) == reason::kServerDrained;
    context.AddTrailingMetadata("grpc-retry-pushback-ms",
                                absl::StrCat(is_drained ? -1 : kRetryDelayMs));
  }
}

absl::Status Draining() {
  return WithRetryDelay(
      MakeError(absl::StatusCode::kUnavailable, reason::kServerDraining,
                "the daemon is stopping; come back when it has restarted"),
      kRetryDelayMs);
}

absl::Status Drained() {
  return WithRetryDelay(
      MakeError(absl::StatusCode::kUnavailable, reason::kServerDrained,
                "the daemon is drained: it accepts and runs nothing until an administrator gives "
                "nightshift server drain --undo"),
      kDrainedRetryDelayMs);
}

}  // namespace nightshift
