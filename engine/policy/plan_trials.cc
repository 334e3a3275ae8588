#include "engine/policy/plan_trials.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

#include "engine/policy/program_cache.h"
#include "engine/policy/quantity_text.h"
#include "engine/schedule/sweep_steps.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

// Parts of the capacities that stay free beside those that the user wants free: pools round up.
constexpr std::array<double, 4> kMargins = {0.0, 0.03, 0.06, 0.15};
// Formulas say at most so much of what virtual time does, or less.
constexpr double kMostPessimistic = 1.03;

const char* AttentionText(bool on_host) {
  return on_host ? "attention on the host" : "attention on the device";
}

// The best trial on one side.
struct Candidate {
  PlanOptions options;
  BlockChoice choice;
  TriedChoice tried;
};

class Trials {
 public:
  Trials(const CostModel& model, const PlanOptions& options, const TryChoice& try_choice)
      : model_(model), options_(options), try_choice_(try_choice) {}

  absl::StatusOr<Trial> Run() {
    const std::optional<bool> host_attention = options_.space.host_attention;
    std::vector<Candidate> best;  // of each side
    std::optional<PlanRejection> untried;
    for (const bool side : {false, true}) {
      if (host_attention.value_or(side) != side) {
        continue;
      }
      if (std::optional<Candidate> candidate = BestOf(side, untried)) {
        best.push_back(*std::move(candidate));
      }
    }
    if (best.empty()) {
      RETURN_IF_ERROR(MakePlan(model_, options_).status());
      return failure_;
    }
    std::stable_sort(best.begin(), best.end(), [](const Candidate& a, const Candidate& b) {
      return a.tried.run.seconds < b.tried.run.seconds;
    });
    ASSIGN_OR_RETURN(Plan plan, MakePlan(model_, best.front().options));
    plan.num_programs += num_programs_;
    Scale(best.front().tried.run, plan);
    if (best.size() > 1) {
      plan.rejections.push_back(RejectionOf(best.back(), plan));
    } else if (untried && untried->choice.host_attention != best.front().choice.host_attention) {
      plan.rejections.push_back(*std::move(untried));
    }
    return Trial{.plan = std::move(plan), .tried = std::move(best.front().tried)};
  }

 private:
  // `untried`: why a side has none.
  std::optional<Candidate> BestOf(bool host_attention, std::optional<PlanRejection>& untried) {
    std::optional<Candidate> best;
    PlanRejection rejection{.what = AttentionText(host_attention),
                            .choice = {.host_attention = host_attention},
                            .slowdown = std::nullopt,
                            .why = {}};
    for (const double margin : kMargins) {
      PlanOptions options = options_;
      options.space.host_attention = host_attention;
      options.space.margin = std::min(options_.space.margin + margin, 0.99);
      const absl::StatusOr<SearchResult> found = SearchBest(model_, options.space);
      if (!found.ok()) {
        rejection.why = std::string(found.status().message());
        break;  // nor does it fit with less
      }
      num_programs_ += found->num_programs;
      const double seconds =
          found->best.solution.seconds_per_request * static_cast<double>(options.space.requests);
      if (seconds > kMostPessimistic * least_seconds_.value_or(seconds)) {
        rejection.choice = found->best.choice;
        rejection.slowdown = seconds / *least_seconds_ - 1;
        rejection.why = "by its formula, not tried";
        break;
      }
      absl::StatusOr<TriedChoice> tried =
          try_choice_(found->best.choice, found->best.solution.shares);
      if (tried.ok()) {
        tried = InTime(*std::move(tried));
      }
      if (!tried.ok()) {
        failure_ = failure_.ok() ? tried.status() : failure_;
        rejection.why = std::string(tried.status().message());
        continue;
      }
      least_seconds_ = std::min(tried->run.seconds, least_seconds_.value_or(tried->run.seconds));
      if (!best || tried->run.seconds < best->tried.run.seconds) {
        best = Candidate{std::move(options), found->best.choice, *std::move(tried)};
      }
    }
    if (!best) {
      untried = std::move(rejection);
    }
    return best;
  }

  absl::StatusOr<TriedChoice> InTime(TriedChoice tried) const {
    const std::optional<double> deadline = options_.space.deadline_seconds;
    if (deadline && tried.run.seconds > *deadline) {
      return absl::ResourceExhaustedError(absl::StrCat(
          "plan ", options_.space.requests, " requests: the schedule takes ",
          DurationText(tried.run.seconds), " in virtual time, the deadline is ",
          DurationText(*deadline), "; give it more time, fewer requests or more memory"));
    }
    return tried;
  }

  static void Scale(const SimulatedRun& run, Plan& plan) {
    const double factor = plan.seconds > 0 ? run.seconds / plan.seconds : 1.0;
    plan.seconds = run.seconds;
    plan.held_seconds *= factor;
    plan.output_tokens_per_s /= factor;
    plan.prompt_tokens_per_s /= factor;
    for (PlanPhase& phase : plan.phases) {
      phase.seconds *= factor;
      for (PlanLane& lane : phase.lanes) {
        lane.seconds *= factor;
      }
    }
    for (double& seconds : plan.seconds_per_gib) {
      seconds *= factor;
    }
  }

  static PlanRejection RejectionOf(const Candidate& candidate, const Plan& plan) {
    return {.what = AttentionText(candidate.choice.host_attention),
            .choice = candidate.choice,
            .slowdown = candidate.tried.run.seconds / plan.seconds - 1,
            .why = absl::StrCat(LaneName(candidate.tried.run.bottleneck), " works most")};
  }

  const ProgramCache model_;
  const PlanOptions& options_;
  const TryChoice& try_choice_;
  std::optional<double> least_seconds_;  // of all trials
  absl::Status failure_;                 // of the first that failed
  int64_t num_programs_ = 0;
};

}  // namespace

absl::StatusOr<Trial> TryPlans(const CostModel& cost_model, const PlanOptions& options,
                               const TryChoice& try_choice) {
  return Trials(cost_model, options, try_choice).Run();
}

}  // namespace nightshift
