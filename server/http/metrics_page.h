// The page that Prometheus reads.
#pragma once

#include <string>

#include "server/http/daemon_status.h"
#include "server/metrics/metrics.h"

namespace nightshift {

inline constexpr char kMetricsType[] = "text/plain; version=0.0.4; charset=utf-8";

// All metrics in the text format, version 0.0.4: what parts have reported, and the daemon's status
// as it is now.
std::string MetricsPage(const DaemonStatus& status, Metrics& metrics);

}  // namespace nightshift
