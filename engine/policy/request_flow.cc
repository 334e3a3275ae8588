#include "engine/policy/request_flow.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

#include "kernels/base/check.h"

namespace nightshift {
namespace {

// Shorter beginnings are not shared (prefix_tree.h).
constexpr int64_t kLeastSharedStretches = 2;

int64_t LongestSpan(const SweepLimits& limits) {
  return limits.prompt_chunk_tokens > 0
             ? std::min(limits.prompt_chunk_tokens, limits.max_sweep_tokens)
             : limits.max_sweep_tokens;
}

}  // namespace

RequestFlow::RequestFlow(const WorkloadProfile& workload, const FlowOptions& options,
                         const KvLayers& layers)
    : options_(options),
      layers_(&layers),
      needs_(layers.Needs(LongestSpan(options.limits))),
      free_(options.pages) {
  int64_t stretches = workload.shared_prefix_tokens / kPagePositions;
  for (const WorkloadClass& one : workload.classes) {
    stretches = std::min(stretches, (one.prompt_tokens - 1) / kPagePositions);
  }
  shared_stretches_ = stretches >= kLeastSharedStretches && options.requests > 1 ? stretches : 0;
}

absl::StatusOr<RequestFlow> RequestFlow::Create(const WorkloadProfile& workload,
                                                const FlowOptions& options,
                                                const KvLayers& layers) {
  RequestFlow flow(workload, options, layers);
  for (const WorkloadClass& one : workload.classes) {
    const int64_t asked = flow.needs_.Most(one.prompt_tokens + one.output_tokens);
    if (asked > options.pages.total()) {
      return absl::ResourceExhaustedError(
          absl::StrCat("hold a request of ", one.prompt_tokens, " prompt and ", one.output_tokens,
                       " output tokens: it takes ", asked, " kv pages of ", kPagePositions,
                       " positions, there are ", options.pages.total()));
    }
  }
  flow.QueueRequests(workload);
  return flow;
}

// The class that is furthest behind its share is next, so that every stretch of the queue has the
// proportions of the whole.
void RequestFlow::QueueRequests(const WorkloadProfile& workload) {
  const double total = static_cast<double>(workload.requests());
  std::vector<double> owed(workload.classes.size(), 0.0);
  for (int64_t i = 0; i < options_.requests; ++i) {
    size_t next = 0;
    for (size_t j = 0; j < owed.size(); ++j) {
      owed[j] += static_cast<double>(workload.classes[j].requests) / total;
      next = owed[j] > owed[next] ? j : next;
    }
    owed[next] -= 1.0;
    const WorkloadClass& one = workload.classes[next];
    waiting_.push_back({.prompt_tokens = one.prompt_tokens,
                        .output_tokens = one.output_tokens,
                        .shared_stretches = shared_stretches_,
                        .tiers = {},
                        .home = {}});
  }
}

int64_t RequestFlow::ToCommit(const FlowRequest& request) const {
  return needs_.ToCommit(request.known_tokens(), request.output_tokens - request.generated_tokens,
                         request.shared_stretches);
}

int64_t RequestFlow::CommittedPages() const {
  int64_t committed = held_.empty() ? 0 : shared_stretches_ * layers_->ids_per_stretch();
  for (const FlowRequest& request : held_) {
    committed += ToCommit(request);
  }
  return committed;
}

void RequestFlow::Admit() {
  const bool is_closed = options_.schedule != ScheduleKind::kRolling &&
                         std::any_of(held_.begin(), held_.end(), [](const FlowRequest& request) {
                           return request.computed_tokens > 0;
                         });
  int64_t committed = CommittedPages();
  while (!is_closed && !waiting_.empty() &&
         static_cast<int64_t>(held_.size()) < options_.max_block_requests) {
    const int64_t asked = ToCommit(waiting_.front());
    if (committed + asked > options_.pages.total() && !held_.empty()) {
      break;
    }
    committed += asked;
    held_.push_back(std::move(waiting_.front()));
    waiting_.pop_front();
  }
  most_committed_pages_ = std::max(most_committed_pages_, committed);
}

// The oldest computes what all share; the others sit the sweep out meanwhile.
void RequestFlow::TakeSharedPages() {
  const bool is_computed = static_cast<int64_t>(prefix_tiers_.size()) >= shared_stretches_;
  bool computes = false;
  for (FlowRequest& request : held_) {
    request.waits_for_prefix = false;
    if (request.shared_stretches == 0 ||
        static_cast<int64_t>(request.tiers.size()) >= request.shared_stretches) {
      continue;
    }
    if (is_computed) {
      request.tiers = prefix_tiers_;
      request.computed_tokens = request.shared_stretches * kPagePositions;
      request.home = prefix_tiers_.front();
    } else if (!computes) {
      computes = true;
    } else {
      request.waits_for_prefix = true;
    }
  }
}

std::optional<SweepSchedule> RequestFlow::Begin() {
  Admit();
  if (held_.empty()) {
    return std::nullopt;
  }
  TakeSharedPages();
  std::vector<HeldRequest> requests;
  for (const FlowRequest& request : held_) {
    requests.push_back({.computed_tokens = request.computed_tokens,
                        .known_tokens = request.waits_for_prefix ? request.computed_tokens
                                                                 : request.known_tokens(),
                        .pages = OwnPages(request)});
  }
  SweepLimits limits = options_.limits;
  limits.free_pages = free_pages();
  limits.pages_per_stretch = layers_->ids_per_stretch();
  SweepSchedule schedule = ScheduleSweep(requests, limits);
  Evict(schedule.num_evicted);
  for (const Span& span : schedule.spans) {
    Grow(held_[span.request], span.first_position + span.num_tokens);
  }
  most_pages_.device = std::max(most_pages_.device, options_.pages.device - free_.device);
  most_pages_.host = std::max(most_pages_.host, options_.pages.host - free_.host);
  most_pages_.disk = std::max(most_pages_.disk, options_.pages.disk - free_.disk);
  return schedule;
}

void RequestFlow::Evict(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    FlowRequest& request = held_.back();
    Free(request);
    request.computed_tokens = 0;
    request.tiers.clear();
    request.dropped = 0;
    request.home.reset();
    waiting_.push_front(std::move(request));
    held_.pop_back();
    ++num_evictions_;
  }
}

void RequestFlow::End(const SweepSchedule& schedule) {
  for (const Span& span : schedule.spans) {
    FlowRequest& request = held_[span.request];
    request.computed_tokens += span.num_tokens;
    if (static_cast<int64_t>(prefix_tiers_.size()) < shared_stretches_ &&
        request.computed_tokens >= shared_stretches_ * kPagePositions) {
      prefix_tiers_.assign(request.tiers.begin(),
                           request.tiers.begin() + static_cast<std::ptrdiff_t>(shared_stretches_));
    }
    DropBehind(request);
  }
  std::vector<bool> ends(held_.size(), false);
  for (const SampledRow& sampled : schedule.sampled) {
    FlowRequest& request = held_[sampled.request];
    request.generated_tokens += request.output_tokens > 0 ? 1 : 0;
    ends[sampled.request] = request.generated_tokens >= request.output_tokens;
  }
  size_t kept = 0;
  for (size_t i = 0; i < held_.size(); ++i) {
    if (ends[i]) {
      Free(held_[i]);
      ++num_finished_;
      continue;
    }
    if (kept != i) {
      held_[kept] = std::move(held_[i]);
    }
    ++kept;
  }
  held_.resize(kept);
}

int64_t& RequestFlow::FreeIn(Tier tier) {
  return tier == Tier::kDevice ? free_.device : tier == Tier::kHost ? free_.host : free_.disk;
}

Tier RequestFlow::Emptiest() const {
  const auto share = [](int64_t free, int64_t all) {
    return all == 0 ? -1.0 : static_cast<double>(free) / static_cast<double>(all);
  };
  const double device = share(free_.device, options_.pages.device);
  const double host = share(free_.host, options_.pages.host);
  const double disk = share(free_.disk, options_.pages.disk);
  return device >= host && device >= disk ? Tier::kDevice
         : host >= disk                   ? Tier::kHost
                                          : Tier::kDisk;
}

void RequestFlow::Grow(FlowRequest& request, int64_t positions) {
  const int64_t stretches = PagesFor(positions);
  const int64_t ids = layers_->ids_per_stretch();
  if (!request.home.has_value()) {
    request.home = Emptiest();
  }
  while (static_cast<int64_t>(request.tiers.size()) < stretches) {
    const Tier tier = FreeIn(*request.home) >= ids ? *request.home : Emptiest();
    FreeIn(tier) -= ids;
    request.tiers.push_back(tier);
  }
}

// Of sliding layers, the pages that no later query sees.
void RequestFlow::DropBehind(FlowRequest& request) {
  const int64_t ids = layers_->ids_per_stretch(true);
  const int64_t end = std::min(static_cast<int64_t>(request.tiers.size()),
                               ids == 0 ? 0 : layers_->StretchesBehind(request.computed_tokens));
  for (; request.dropped < end; ++request.dropped) {
    if (request.dropped >= request.shared_stretches) {
      FreeIn(request.tiers[static_cast<size_t>(request.dropped)]) += ids;
    }
  }
}

// What is shared stays: as long as others come it is held by one of them.
void RequestFlow::Free(FlowRequest& request) {
  const bool owns_prefix = static_cast<int64_t>(prefix_tiers_.size()) < shared_stretches_;
  for (size_t i = 0; i < request.tiers.size(); ++i) {
    const int64_t stretch = static_cast<int64_t>(i);
    if (stretch < request.shared_stretches && !owns_prefix) {
      continue;
    }
    FreeIn(request.tiers[i]) += layers_->ids_per_stretch(false) +
                                (stretch >= request.dropped ? layers_->ids_per_stretch(true) : 0);
  }
}

int64_t RequestFlow::OwnPages(const FlowRequest& request) const {
  const int64_t stretches = static_cast<int64_t>(request.tiers.size());
  const int64_t shared = std::min(stretches, request.shared_stretches);
  return (stretches - shared) * layers_->ids_per_stretch(false) +
         (stretches - std::max(shared, request.dropped)) * layers_->ids_per_stretch(true);
}

}  // namespace nightshift
