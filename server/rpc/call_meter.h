// CallMeter: measures every call of the gRPC server, whoever answers it: time, status code, how
// many are open.
#pragma once

#include <memory>

#include <grpcpp/support/server_interceptor.h>

#include "kernels/base/clock.h"
#include "server/metrics/metrics.h"

namespace nightshift {

// For ServerBuilder's interceptors. It only looks: it neither changes nor delays a call. Methods
// that this daemon does not have are counted together as "other".
std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> MakeCallMeter(
    std::shared_ptr<Metrics> metrics, const Clock& clock);

}  // namespace nightshift
