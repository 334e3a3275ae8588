#include "engine/policy/frontier.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

#include "engine/policy/policy_search.h"
#include "engine/policy/program_cache.h"
#include "engine/policy/quantity_text.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// Bounds on latency between the least and that of the best plan.
constexpr int kBounds = 12;

class Finder {
 public:
  Finder(const CostModel& model, const PlanOptions& options)
      : model_(model),
        options_(options),
        tokens_(options.output_tokens > 0 ? options.output_tokens : options.prompt_tokens) {}

  // Adds the best plan of a space; none when nothing fits.
  absl::Status Add(const SearchSpace& space) {
    const auto result = SearchBest(model_, space);
    if (absl::IsResourceExhausted(result.status())) {
      return absl::OkStatus();
    }
    RETURN_IF_ERROR(result.status());
    const SolvedChoice& best = result->best;
    const double seconds = best.solution.seconds_per_request * static_cast<double>(space.requests);
    if (seconds > 0) {
      points_.push_back({best.solution.seconds * best.program.held_share, tokens_ / seconds,
                         best.choice, best.solution.shares});
    }
    return absl::OkStatus();
  }

  absl::Status AddBlocks() {
    for (int64_t block = 1; block < options_.space.requests; block *= 2) {
      SearchSpace space = options_.space;
      space.block_requests = block;
      RETURN_IF_ERROR(Add(space));
    }
    return absl::OkStatus();
  }

  absl::Status AddBounds() {
    if (points_.empty()) {
      return absl::OkStatus();
    }
    const auto [low, high] = std::minmax_element(
        points_.begin(), points_.end(), [](const FrontierPoint& a, const FrontierPoint& b) {
          return a.held_seconds < b.held_seconds;
        });
    const double least = low->held_seconds;
    const double most = high->held_seconds;
    for (int i = 1; i < kBounds; ++i) {
      SearchSpace space = options_.space;
      space.max_held_seconds =
          std::min(least * std::pow(most / least, static_cast<double>(i) / kBounds),
                   space.max_held_seconds.value_or(most));
      RETURN_IF_ERROR(Add(space));
    }
    return absl::OkStatus();
  }

  // Those that no other point beats.
  std::vector<FrontierPoint> Best() && {
    std::stable_sort(points_.begin(), points_.end(),
                     [](const FrontierPoint& a, const FrontierPoint& b) {
                       return a.held_seconds != b.held_seconds ? a.held_seconds < b.held_seconds
                                                               : a.tokens_per_s > b.tokens_per_s;
                     });
    std::vector<FrontierPoint> best;
    for (FrontierPoint& point : points_) {
      if (best.empty() || point.tokens_per_s > best.back().tokens_per_s * (1 + 1e-6)) {
        best.push_back(std::move(point));
      }
    }
    return best;
  }

 private:
  const CostModel& model_;
  const PlanOptions& options_;
  const double tokens_;
  std::vector<FrontierPoint> points_;
};

}  // namespace

absl::StatusOr<Frontier> FindFrontier(const CostModel& cost_model, const PlanOptions& options) {
  const ProgramCache model(cost_model);
  RETURN_IF_ERROR(SearchBest(model, options.space).status());
  Finder finder(model, options);
  RETURN_IF_ERROR(finder.Add(options.space));
  if (!options.space.block_requests) {
    RETURN_IF_ERROR(finder.AddBlocks());
  }
  RETURN_IF_ERROR(finder.AddBounds());
  Frontier frontier;
  frontier.rate_name = options.output_tokens > 0 ? "generated tokens/s" : "prompt tokens/s";
  frontier.points = std::move(finder).Best();
  return frontier;
}

std::string FrontierText(const Frontier& frontier) {
  std::string text =
      absl::StrFormat("%12s %20s %8s %8s %8s %8s %10s %24s\n", "latency", frontier.rate_name,
                      "block", "batch", "weights", "keys", "attention", "weights on dev/host/disk");
  for (const FrontierPoint& point : frontier.points) {
    const std::string where = absl::StrFormat("%.0f/%.0f/%.0f %%", 100 * point.shares[0],
                                              100 * point.shares[1], 100 * point.shares[2]);
    absl::StrAppendFormat(&text, "%12s %20.4g %8d %8d %8s %8s %10s %24s\n",
                          DurationText(point.held_seconds), point.tokens_per_s,
                          point.choice.block_requests, point.choice.batch_requests,
                          DTypeName(point.choice.weights), DTypeName(point.choice.kv),
                          point.choice.host_attention ? "host" : "device", where);
  }
  return text;
}

std::string FrontierJson(const Frontier& frontier) {
  Json json = {{"rate", frontier.rate_name}, {"points", Json::array()}};
  for (const FrontierPoint& point : frontier.points) {
    json["points"].push_back({{"held_seconds", point.held_seconds},
                              {"tokens_per_s", point.tokens_per_s},
                              {"block_requests", point.choice.block_requests},
                              {"batch_requests", point.choice.batch_requests},
                              {"weights", DTypeName(point.choice.weights)},
                              {"kv", DTypeName(point.choice.kv)},
                              {"attention", point.choice.host_attention ? "host" : "device"},
                              {"shares", point.shares}});
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace nightshift
