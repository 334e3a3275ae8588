#include "engine/policy/workload_profile.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

// So that sums of tokens stay exact as doubles and far from the end of int64.
constexpr int64_t kMostRequests = int64_t{1} << 40;

// Sums over the requests of some classes.
struct Sums {
  double prompt_tokens = 0.0;
  double output_tokens = 0.0;
  int64_t requests = 0;

  void Add(const WorkloadClass& other) {
    const double count = static_cast<double>(other.requests);
    prompt_tokens += count * static_cast<double>(other.prompt_tokens);
    output_tokens += count * static_cast<double>(other.output_tokens);
    requests += other.requests;
  }
  WorkloadClass Mean() const {
    const double count = static_cast<double>(requests);
    return {.prompt_tokens = static_cast<int64_t>(std::ceil(prompt_tokens / count)),
            .output_tokens = static_cast<int64_t>(std::ceil(output_tokens / count)),
            .requests = requests};
  }
};

Sums SumOf(const std::vector<WorkloadClass>& classes) {
  Sums sums;
  for (const WorkloadClass& one : classes) {
    sums.Add(one);
  }
  return sums;
}

// The cell of a length on a grid whose lines are `ratio` apart; its own for ratio 1.
int64_t CellOf(int64_t tokens, double ratio) {
  return ratio == 1.0
             ? tokens
             : static_cast<int64_t>(std::log1p(static_cast<double>(tokens)) / std::log(ratio));
}

std::vector<WorkloadClass> MergeCells(const std::vector<WorkloadClass>& classes, double ratio) {
  std::map<std::pair<int64_t, int64_t>, Sums> cells;
  for (const WorkloadClass& one : classes) {
    cells[{CellOf(one.prompt_tokens, ratio), CellOf(one.output_tokens, ratio)}].Add(one);
  }
  std::vector<WorkloadClass> merged;
  for (const auto& [cell, sums] : cells) {
    merged.push_back(sums.Mean());
  }
  return merged;
}

absl::Status CheckClass(const WorkloadClass& one, int64_t shared_prefix_tokens,
                        int64_t context_tokens) {
  const auto refuse = [&](const char* what) {
    return absl::InvalidArgumentError(absl::StrCat("plan for ", one.requests, " requests of ",
                                                   one.prompt_tokens, " prompt and ",
                                                   one.output_tokens, " output tokens: ", what));
  };
  if (one.requests < 1 || one.requests > kMostRequests) {
    return refuse("the number of requests must be 1 or more, and below 2^40");
  }
  if (one.prompt_tokens < 1 || one.output_tokens < 0) {
    return refuse("a prompt has 1 token or more, an output 0 or more");
  }
  if (one.prompt_tokens > context_tokens || one.output_tokens > context_tokens ||
      one.prompt_tokens + one.output_tokens > context_tokens) {
    return refuse(absl::StrCat("the model's context holds ", context_tokens, " tokens").c_str());
  }
  if (one.prompt_tokens < shared_prefix_tokens) {
    return refuse(absl::StrCat("all prompts are to begin with ", shared_prefix_tokens,
                               " tokens that they share")
                      .c_str());
  }
  return absl::OkStatus();
}

}  // namespace

int64_t WorkloadProfile::requests() const {
  return SumOf(classes).requests;
}

double WorkloadProfile::mean_prompt_tokens() const {
  const Sums sums = SumOf(classes);
  return sums.requests == 0 ? 0.0
                            : sums.prompt_tokens / static_cast<double>(sums.requests) -
                                  static_cast<double>(shared_prefix_tokens);
}

double WorkloadProfile::mean_output_tokens() const {
  const Sums sums = SumOf(classes);
  return sums.requests == 0 ? 0.0 : sums.output_tokens / static_cast<double>(sums.requests);
}

// Cells of a grid that grows coarser until their number is small enough: 1 % at first.
void WorkloadProfile::Merge(size_t max_classes) {
  std::vector<WorkloadClass> merged = MergeCells(classes, 1.0);
  for (double step = 0.01; merged.size() > std::max<size_t>(max_classes, 1); step *= 1.5) {
    merged = MergeCells(classes, 1.0 + step);
  }
  classes = std::move(merged);
}

absl::Status WorkloadProfile::Validate(int64_t context_tokens) const {
  if (classes.empty()) {
    return absl::InvalidArgumentError("plan for no requests: give at least one");
  }
  if (shared_prefix_tokens < 0) {
    return absl::InvalidArgumentError(absl::StrCat("plan for prompts that share ",
                                                   shared_prefix_tokens,
                                                   " tokens; the number must be 0 or above"));
  }
  if (deadline_seconds.has_value() &&
      !(std::isfinite(*deadline_seconds) && *deadline_seconds > 0.0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("plan for a deadline of ", *deadline_seconds, " s; it must be above 0"));
  }
  int64_t total = 0;
  for (const WorkloadClass& one : classes) {
    const absl::Status status = CheckClass(one, shared_prefix_tokens, context_tokens);
    if (!status.ok()) {
      return status;
    }
    total += one.requests;
    if (total > kMostRequests) {
      return absl::InvalidArgumentError(
          absl::StrCat("plan for ", total, " requests and more; at most 2^40 are planned for"));
    }
  }
  return absl::OkStatus();
}

}  // namespace nightshift
