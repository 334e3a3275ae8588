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
    context.AddTrailingMetadata("grpc-retry-pushback-ms", absl::StrCat(kRetryDelayMs));
  }
}

absl::Status Draining() {
  return WithRetryDelay(
      MakeError(absl::StatusCode::kUnavailable, reason::kServerDraining,
                "the daemon is draining; come back when it has restarted, or after "
                "nightshift server drain --undo"),
      kRetryDelayMs);
}

}  // namespace nightshift
