#include "engine/policy/plan.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "engine/policy/program_cache.h"
#include "engine/policy/quantity_text.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

constexpr double kGibibyte = 1 << 30;
constexpr double kLeastGain = 0.005;
// Parts of the time that are told.
constexpr double kLeastTold = 0.03;
constexpr std::array<Tier, 3> kTiers = {Tier::kDevice, Tier::kHost, Tier::kDisk};

double PerSecond(double amount, double seconds) {
  return seconds > 0 ? amount / seconds : 0;
}

// Phases of the program, which may finish more or fewer requests than the job has, for the job.
std::vector<PlanPhase> PhasesOf(const SolvedChoice& solved, double requests) {
  const Shares& shares = solved.solution.shares;
  std::vector<PlanPhase> phases;
  for (const CostPhase& phase : solved.program.phases) {
    const double times = phase.times * requests / solved.program.requests;
    PlanPhase planned{.name = phase.name,
                      .seconds = times * PhaseSeconds(phase, shares),
                      .lanes = {},
                      .longest = {}};
    for (const CostTerm& term : phase.serial) {
      planned.lanes.push_back({term.name, times * term.seconds.At(shares), true});
    }
    double longest = 0;
    for (const CostTerm& term : phase.overlapped) {
      const double seconds = times * term.seconds.At(shares);
      planned.lanes.push_back({term.name, seconds, false});
      if (seconds > longest) {
        longest = seconds;
        planned.longest = term.name;
      }
    }
    phases.push_back(std::move(planned));
  }
  return phases;
}

// What the job waits for, by lane: the longest of each phase, and what nothing hides.
std::string BindingText(const std::vector<PlanPhase>& phases) {
  std::map<std::string, double> waits;
  double seconds = 0;
  for (const PlanPhase& phase : phases) {
    seconds += phase.seconds;
    for (const PlanLane& lane : phase.lanes) {
      if (lane.serial || lane.name == phase.longest) {
        waits[lane.name] += lane.seconds;
      }
    }
  }
  std::vector<std::pair<double, std::string>> parts;
  for (const auto& [lane, waited] : waits) {
    if (waited >= kLeastTold * seconds && waited > 0) {
      parts.emplace_back(waited / seconds, lane);
    }
  }
  if (parts.empty()) {
    return "nothing takes time";
  }
  std::sort(parts.begin(), parts.end(), std::greater<>());
  return absl::StrCat(
      "waits for ",
      absl::StrJoin(parts, ", ",
                    [](std::string* text, const std::pair<double, std::string>& part) {
                      absl::StrAppendFormat(text, "%s %.0f %%", part.second, 100 * part.first);
                    }),
      " of the time");
}

std::vector<PlanTier> TiersOf(const SolvedChoice& solved) {
  std::vector<PlanTier> tiers;
  for (const Tier tier : kTiers) {
    std::optional<PlanTier> fullest;
    double least_free = 0;
    for (size_t i = 0; i < solved.program.capacities.size(); ++i) {
      const CapacityRow& row = solved.program.capacities[i];
      const double bytes = solved.solution.capacity_bytes[i];
      const double free = row.capacity_bytes - bytes;
      if (row.tier == tier && (!fullest || free < least_free)) {
        fullest = {tier, row.name, bytes, row.capacity_bytes};
        least_free = free;
      }
    }
    if (fullest) {
      tiers.push_back(*std::move(fullest));
    }
  }
  return tiers;
}

// About an eighth of what there is, as a power of two of GiB.
double MoreBytes(double capacity_bytes) {
  const double eighth = std::max(1.0, capacity_bytes / 8 / kGibibyte);
  return std::exp2(std::round(std::log2(eighth))) * kGibibyte;
}

// Plans again with one thing changed.
class Reliefs {
 public:
  Reliefs(const CostModel& model, const SearchSpace& space, const SolvedChoice& best)
      : model_(model),
        space_(space),
        choice_(best.choice),
        best_seconds_(best.solution.seconds_per_request) {}

  absl::Status Try(std::string what, const SearchSpace& space) {
    const auto result = SearchNear(model_, space, choice_);
    RETURN_IF_ERROR(result.status());
    num_programs_ += result->num_programs;
    const double seconds = result->best.solution.seconds_per_request;
    const double gain = seconds > 0 ? best_seconds_ / seconds - 1 : 0;
    if (gain > kLeastGain) {
      found_.push_back({std::move(what), gain});
    }
    return absl::OkStatus();
  }

  absl::Status TryMemory(const PlanTier& tier) {
    SearchSpace space = space_;
    const double bytes = MoreBytes(tier.capacity_bytes);
    space.more_bytes[static_cast<size_t>(tier.tier)] = bytes;
    return Try(absl::StrCat(BytesText(bytes), " more ", TierName(tier.tier),
                            tier.tier == Tier::kDisk ? "" : " memory"),
               space);
  }

  absl::Status TryTerm(const std::string& name) {
    SearchSpace space = space_;
    space.halved_term = name;
    return Try(absl::StrCat("twice the rate of ", name), space);
  }

  int64_t num_programs() const { return num_programs_; }
  std::vector<PlanRelief> Sorted() && {
    std::stable_sort(found_.begin(), found_.end(),
                     [](const PlanRelief& a, const PlanRelief& b) { return a.gain > b.gain; });
    return std::move(found_);
  }

 private:
  const CostModel& model_;
  const SearchSpace& space_;
  const BlockChoice choice_;
  const double best_seconds_;
  std::vector<PlanRelief> found_;
  int64_t num_programs_ = 0;
};

// Lanes that a phase waits for, each once.
std::vector<std::string> WaitedFor(const std::vector<PlanPhase>& phases) {
  std::vector<std::string> names;
  for (const PlanPhase& phase : phases) {
    for (const PlanLane& lane : phase.lanes) {
      const bool waits = lane.seconds > 0 && (lane.serial || lane.name == phase.longest);
      if (waits && std::find(names.begin(), names.end(), lane.name) == names.end()) {
        names.push_back(lane.name);
      }
    }
  }
  return names;
}

PlanRejection RejectionOf(Alternative alternative, double best_seconds, double requests) {
  PlanRejection rejection{
      .what = std::move(alternative.what), .choice = alternative.choice, .slowdown = {}, .why = {}};
  if (!alternative.solved.ok()) {
    rejection.why = std::string(alternative.solved.status().message());
    return rejection;
  }
  const double seconds = alternative.solved->solution.seconds_per_request;
  rejection.slowdown = best_seconds > 0 ? seconds / best_seconds - 1 : 0;
  rejection.why = BindingText(PhasesOf(*alternative.solved, requests));
  return rejection;
}

// Adds to what is lacking the types that would fit, if others were allowed.
absl::Status WhatWouldFit(const CostModel& model, const SearchSpace& space, absl::Status lacking) {
  if (!absl::IsResourceExhausted(lacking)) {
    return lacking;
  }
  for (const DType kv : {space.kv.front(), DType::kU8G64, DType::kU4G64}) {
    for (const DType weights : {space.weights.front(), DType::kI8G32, DType::kU4G64}) {
      SearchSpace other = space;
      other.weights = {weights};
      other.kv = {kv};
      const auto result = SearchBest(model, other);
      if (result.ok()) {
        return absl::ResourceExhaustedError(
            absl::StrCat(lacking.message(), "; with weights in ", DTypeName(weights),
                         " and keys and values in ", DTypeName(kv), " it would"));
      }
    }
  }
  return lacking;
}

}  // namespace

const char* TierName(Tier tier) {
  switch (tier) {
    case Tier::kDevice:
      return "device";
    case Tier::kHost:
      return "host";
    case Tier::kDisk:
      return "disk";
  }
  return "unknown";
}

absl::StatusOr<Plan> MakePlan(const CostModel& cost_model, const PlanOptions& options) {
  const ProgramCache model(cost_model);
  auto searched = SearchPolicy(model, options.space);
  if (!searched.ok()) {
    return WhatWouldFit(model, options.space, searched.status());
  }
  const SolvedChoice& best = searched->best;
  const auto requests = static_cast<double>(options.space.requests);
  Plan plan;
  plan.choice = best.choice;
  plan.shares = best.solution.shares;
  plan.requests = options.space.requests;
  plan.seconds = best.solution.seconds_per_request * requests;
  plan.held_seconds = best.solution.seconds * best.program.held_share;
  plan.output_tokens_per_s = PerSecond(options.output_tokens, plan.seconds);
  plan.prompt_tokens_per_s = PerSecond(options.prompt_tokens, plan.seconds);
  plan.phases = PhasesOf(best, requests);
  plan.tiers = TiersOf(best);
  plan.binding = BindingText(plan.phases);
  for (size_t i = 0; i < best.program.capacities.size(); ++i) {
    plan.seconds_per_gib[static_cast<size_t>(best.program.capacities[i].tier)] +=
        best.solution.byte_prices[i] * kGibibyte * requests;
  }
  Reliefs reliefs(model, options.space, best);
  for (const PlanTier& tier : plan.tiers) {
    RETURN_IF_ERROR(reliefs.TryMemory(tier));
  }
  for (const std::string& name : WaitedFor(plan.phases)) {
    RETURN_IF_ERROR(reliefs.TryTerm(name));
  }
  plan.num_programs = searched->num_programs + reliefs.num_programs();
  plan.reliefs = std::move(reliefs).Sorted();
  for (Alternative& alternative : searched->alternatives) {
    plan.rejections.push_back(
        RejectionOf(std::move(alternative), best.solution.seconds_per_request, requests));
  }
  return plan;
}

}  // namespace nightshift
