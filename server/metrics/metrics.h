// Metrics: what the daemon counts and measures, by the names that Prometheus reads. Parts are given
// the one object of their daemon and report to its members.
//
// Names start with "nightshift_", have base units (seconds, bytes, ratios) and end in "_total"
// where they only rise. Labels come from fixed lists: never a job, a custom_id or a text.
#pragma once

#include <map>
#include <string>
#include <utility>

#include <prometheus/counter.h>
#include <prometheus/family.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "absl/strings/string_view.h"

namespace nightshift {

// Thread-safe. Reporting costs an atomic addition, to a histogram a lock that is held for moments:
// report per sweep, per commit, per row or per call, never per token.
class Metrics {
 private:
  using Counters = prometheus::Family<prometheus::Counter>;
  using Gauges = prometheus::Family<prometheus::Gauge>;
  using Histograms = prometheus::Family<prometheus::Histogram>;

  prometheus::Registry registry_;  // owns all that follows

 public:
  Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // --- requests ---
  // Results by outcome: "succeeded", "failed", "cancelled", "expired"; those included that
  // duplicates_dropped counts.
  prometheus::Counter& Requests(absl::string_view outcome);
  prometheus::Counter& attempts;            // rows claimed
  prometheus::Counter& poisoned;            // rows whose last attempt failed in the engine
  prometheus::Counter& duplicates_dropped;  // results of rows that had one, or whose job is gone
  prometheus::Histogram& queue_seconds;     // from acceptance to each time that it joins the block
  prometheus::Histogram& request_seconds;   // from joining the block to the result
  prometheus::Gauge& last_publish_timestamp;

  // --- sweeps ---
  prometheus::Counter& prompt_tokens;  // computed
  prometheus::Counter& output_tokens;
  prometheus::Counter& cached_prompt_tokens;  // taken from others
  prometheus::Histogram& sweep_seconds;
  prometheus::Counter& sweep_failures;
  prometheus::Counter& model_loads;
  // By lane (LaneName): "read", "compute", ...
  prometheus::Counter& LaneBusySeconds(absl::string_view lane);
  // Time in which computing stood still for it.
  prometheus::Counter& LaneWaitSeconds(absl::string_view lane);
  // Bytes moved: tier "disk" or "device", direction "in" (towards the computation) or "out".
  prometheus::Counter& OffloadBytes(absl::string_view tier, absl::string_view direction);

  // --- store ---
  prometheus::Histogram& commit_seconds;
  prometheus::Histogram& commit_writes;  // in one commit
  // By kind: "full" (no room on the disk), "busy" (comes again), "fatal" (the daemon ends).
  prometheus::Counter& StoreErrors(absl::string_view kind);

  // --- calls ---
  // `method`: "GetJob"; `code`: "OK", "NOT_FOUND", ...
  prometheus::Histogram& RpcSeconds(absl::string_view method, absl::string_view code);
  prometheus::Gauge& RpcInFlight(absl::string_view method);

  // --- what is read when somebody asks, not reported ---
  // Sets a gauge; the first use of a name gives its help. Names and labels as above.
  void Set(const std::string& name, const std::string& help, double value,
           const std::map<std::string, std::string>& labels = {});

  // All of them in Prometheus' text format, version 0.0.4.
  std::string Text() const;

 private:
  prometheus::Counter& AddCounter(const char* name, const char* help);
  prometheus::Histogram& AddHistogram(const char* name, const char* help,
                                      const prometheus::Histogram::BucketBoundaries& bounds);
  Counters& CounterFamily(const char* name, const char* help);

  Counters& requests_;
  Counters& lane_busy_seconds_;
  Counters& lane_wait_seconds_;
  Counters& offload_bytes_;
  Counters& store_errors_;
  Histograms& rpc_seconds_;
  Gauges& rpc_in_flight_;
};

}  // namespace nightshift
