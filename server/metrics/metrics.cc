#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

using Bounds = prometheus::Histogram::BucketBoundaries;

// A request waits from moments to days, for the jobs before its own.
const Bounds& QueueBounds() {
  static const Bounds kBounds = {1, 10, 60, 300, 900, 3600, 4 * 3600, 12 * 3600, 86400, 7 * 86400};
  return kBounds;
}

// It is held for as many sweeps as it has tokens.
const Bounds& HeldBounds() {
  static const Bounds kBounds = {0.1, 1, 5, 15, 60, 300, 900, 3600, 4 * 3600};
  return kBounds;
}

// A tiny model in memory to a large one from a slow disk.
const Bounds& SweepBounds() {
  static const Bounds kBounds = {0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300};
  return kBounds;
}

// A call, or a commit: what waits for a disk takes milliseconds.
const Bounds& ShortBounds() {
  static const Bounds kBounds = {0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 60};
  return kBounds;
}

const Bounds& GroupBounds() {
  static const Bounds kBounds = {1, 2, 4, 8, 16, 32, 64, 128, 256};
  return kBounds;
}

std::string FullName(absl::string_view name) {
  return absl::StrCat("nightshift_", name);
}

}  // namespace

Metrics::Metrics()
    : attempts(AddCounter("request_attempts_total", "Rows that were claimed to run")),
      poisoned(AddCounter("requests_poisoned_total",
                          "Rows that failed because the engine failed in all of their attempts")),
      duplicates_dropped(
          AddCounter("publish_duplicates_dropped_total",
                     "Results that came too late: the row had one, or its job was deleted")),
      queue_seconds(AddHistogram(
          "request_queue_seconds",
          "From the acceptance of a request to each time that it joins the block", QueueBounds())),
      request_seconds(AddHistogram("request_seconds",
                                   "From the time that a request joined the block to its result",
                                   HeldBounds())),
      last_publish_timestamp(
          prometheus::BuildGauge()
              .Name("nightshift_last_publish_timestamp_seconds")
              .Help("When results were last made durable; 0: not since the start")
              .Register(registry_)
              .Add({})),
      prompt_tokens(AddCounter("prompt_tokens_total", "Prompt tokens that were computed")),
      output_tokens(AddCounter("output_tokens_total", "Tokens that were generated")),
      cached_prompt_tokens(
          AddCounter("cached_prompt_tokens_total",
                     "Prompt tokens that were taken from requests that begin alike")),
      sweep_seconds(AddHistogram("sweep_seconds", "Of one pass over all layers for the whole block",
                                 SweepBounds())),
      sweep_failures(AddCounter("sweep_failures_total", "Sweeps that ended with an error")),
      model_loads(AddCounter("model_loads_total", "Models that were loaded")),
      commit_seconds(AddHistogram("store_commit_seconds",
                                  "Of one transaction of the store, its sync included",
                                  ShortBounds())),
      commit_writes(AddHistogram("store_commit_writes", "Writes in one transaction of the store",
                                 GroupBounds())),
      requests_(CounterFamily("requests_total", "Results by outcome, late ones included")),
      lane_busy_seconds_(CounterFamily("lane_busy_seconds_total",
                                       "Time in which a lane of the engine had work; the share of "
                                       "sweep_seconds_sum is its load")),
      lane_wait_seconds_(CounterFamily("lane_wait_seconds_total",
                                       "Time in which computing stood still for a lane")),
      offload_bytes_(CounterFamily("offload_bytes_total",
                                   "Bytes moved from (in) and to (out) a tier by sweeps")),
      store_errors_(CounterFamily("store_errors_total", "Transactions that failed")),
      rpc_seconds_(prometheus::BuildHistogram()
                       .Name("nightshift_rpc_seconds")
                       .Help("Of calls by method and status code, waits and streams included")
                       .Register(registry_)),
      rpc_in_flight_(prometheus::BuildGauge()
                         .Name("nightshift_rpc_in_flight")
                         .Help("Calls that have not ended")
                         .Register(registry_)) {
  // What has not happened is told as 0, so that its first time shows as a rise.
  for (const char* outcome : {"succeeded", "failed", "cancelled", "expired"}) {
    Requests(outcome);
  }
  for (const char* kind : {"full", "busy", "fatal"}) {
    StoreErrors(kind);
  }
}

prometheus::Counter& Metrics::Requests(absl::string_view outcome) {
  return requests_.Add({{"outcome", std::string(outcome)}});
}

prometheus::Counter& Metrics::LaneBusySeconds(absl::string_view lane) {
  return lane_busy_seconds_.Add({{"lane", std::string(lane)}});
}

prometheus::Counter& Metrics::LaneWaitSeconds(absl::string_view lane) {
  return lane_wait_seconds_.Add({{"lane", std::string(lane)}});
}

prometheus::Counter& Metrics::OffloadBytes(absl::string_view tier, absl::string_view direction) {
  return offload_bytes_.Add({{"tier", std::string(tier)}, {"direction", std::string(direction)}});
}

prometheus::Counter& Metrics::StoreErrors(absl::string_view kind) {
  return store_errors_.Add({{"kind", std::string(kind)}});
}

prometheus::Histogram& Metrics::RpcSeconds(absl::string_view method, absl::string_view code) {
  return rpc_seconds_.Add({{"method", std::string(method)}, {"code", std::string(code)}},
                          ShortBounds());
}

prometheus::Gauge& Metrics::RpcInFlight(absl::string_view method) {
  return rpc_in_flight_.Add({{"method", std::string(method)}});
}

void Metrics::Set(const std::string& name, const std::string& help, double value,
                  const std::map<std::string, std::string>& labels) {
  // The same name and help is the same family.
  prometheus::BuildGauge()
      .Name(FullName(name))
      .Help(help)
      .Register(registry_)
      .Add(prometheus::Labels(labels.begin(), labels.end()))
      .Set(value);
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(registry_.Collect());
}

prometheus::Counter& Metrics::AddCounter(const char* name, const char* help) {
  return CounterFamily(name, help).Add({});
}

prometheus::Histogram& Metrics::AddHistogram(const char* name, const char* help,
                                             const Bounds& bounds) {
  return prometheus::BuildHistogram()
      .Name(FullName(name))
      .Help(help)
      .Register(registry_)
      .Add({}, bounds);
}

Metrics::Counters& Metrics::CounterFamily(const char* name, const char* help) {
  return prometheus::BuildCounter().Name(FullName(name)).Help(help).Register(registry_);
}

}  // namespace nightshift
