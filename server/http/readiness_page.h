// The page that says whether the daemon is ready.
#pragma once

#include <vector>

#include "server/http/http_server.h"
#include "server/rpc/readiness.h"

namespace nightshift {

// 200 when every check passes, else 503; one line a check: "disk: ok", "drain: the daemon is ...".
HttpResponse ReadinessPage(const std::vector<ReadinessCheck>& checks);

}  // namespace nightshift
