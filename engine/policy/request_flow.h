// RequestFlow: the requests of a workload on their way through an engine, without their tokens:
// who is held, what each sweep computes, which pages that takes. Pure.
//
// Admission, spans, batches and evictions are the engine's own (KvPageNeeds, ScheduleSweep).
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "engine/memory/kv_cache.h"
#include "engine/memory/kv_layers.h"
#include "engine/policy/workload_profile.h"
#include "engine/schedule/sweep_schedule.h"
#include "engine/schedule/tier.h"

namespace nightshift {

struct FlowOptions {
  int64_t max_block_requests = 1;
  // free_pages and pages_per_stretch are the flow's own.
  SweepLimits limits;
  ScheduleKind schedule = ScheduleKind::kRolling;
  KvPages pages;
  // Of the workload's requests, in the proportions of its classes.
  int64_t requests = 1;
};

// A request of the flow.
struct FlowRequest {
  int64_t prompt_tokens = 0;
  int64_t output_tokens = 0;
  int64_t generated_tokens = 0;
  int64_t computed_tokens = 0;
  int64_t shared_stretches = 0;  // of its first, whose pages others hold too
  bool waits_for_prefix = false;
  std::vector<Tier> tiers;  // by stretch: where its pages lie
  int64_t dropped = 0;      // stretches behind the window
  std::optional<Tier> home;

  int64_t known_tokens() const { return prompt_tokens + generated_tokens; }
};

class RequestFlow {
 public:
  // `layers` outlives the flow. Errors: RESOURCE_EXHAUSTED when a request does not fit the pages
  // alone, with the numbers.
  static absl::StatusOr<RequestFlow> Create(const WorkloadProfile& workload,
                                            const FlowOptions& options, const KvLayers& layers);

  // Admits what has room and schedules the next sweep; nothing when all requests have ended.
  std::optional<SweepSchedule> Begin();
  // The sweep has been computed: tokens are sampled, requests end.
  void End(const SweepSchedule& schedule);

  const std::vector<FlowRequest>& held() const { return held_; }
  int64_t num_finished() const { return num_finished_; }
  int64_t num_evictions() const { return num_evictions_; }
  // Most page ids that held requests have had at one time, in each tier and in all.
  const KvPages& most_pages() const { return most_pages_; }
  // Most that were counted for held requests at one time.
  int64_t most_committed_pages() const { return most_committed_pages_; }

 private:
  RequestFlow(const WorkloadProfile& workload, const FlowOptions& options, const KvLayers& layers);

  void QueueRequests(const WorkloadProfile& workload);
  void Admit();
  int64_t CommittedPages() const;
  int64_t ToCommit(const FlowRequest& request) const;
  void TakeSharedPages();
  void Grow(FlowRequest& request, int64_t positions);
  void DropBehind(FlowRequest& request);
  void Free(FlowRequest& request);
  int64_t OwnPages(const FlowRequest& request) const;
  int64_t& FreeIn(Tier tier);
  int64_t free_pages() const { return free_.total(); }
  Tier Emptiest() const;
  void Evict(size_t count);

  FlowOptions options_;
  const KvLayers* layers_;
  KvPageNeeds needs_;
  KvPages free_;
  int64_t shared_stretches_ = 0;    // of all prompts
  std::vector<Tier> prefix_tiers_;  // by stretch, once they are computed
  std::deque<FlowRequest> waiting_;
  std::vector<FlowRequest> held_;
  int64_t num_finished_ = 0;
  int64_t num_evictions_ = 0;
  KvPages most_pages_;
  int64_t most_committed_pages_ = 0;
};

}  // namespace nightshift
