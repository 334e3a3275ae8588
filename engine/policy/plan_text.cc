// PlanText and PlanJson of plan.h.
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "engine/policy/plan.h"
#include "engine/policy/quantity_text.h"

namespace nightshift {
namespace {

// Members keep the order in which a person reads them.
using Json = nlohmann::ordered_json;

constexpr std::array<const char*, 3> kKinds = {"weights", "keys", "hidden"};
constexpr std::array<const char*, 3> kJsonKinds = {"weights", "kv", "activations"};
constexpr size_t kTiers = 3;
// Less of a share, or of time, is not told.
constexpr double kLeastShown = 5e-4;

void AppendLine(std::string& text, const std::string& name, const std::string& value) {
  absl::StrAppendFormat(&text, "%-10s %s\n", name, value);
}

std::string ChoiceText(const BlockChoice& choice) {
  std::string text = absl::StrFormat(
      "%d requests in batches of %d; weights %s, keys and values %s, attention on the %s",
      choice.block_requests, choice.batch_requests, DTypeName(choice.weights), DTypeName(choice.kv),
      choice.host_attention ? "host" : "device");
  if (choice.chunk_tokens > 0) {
    absl::StrAppend(&text, ", prompt chunks of ", choice.chunk_tokens);
  }
  return text;
}

std::string SharesText(const Shares& shares, size_t kind) {
  std::vector<std::string> parts;
  for (size_t tier = 0; tier < kTiers; ++tier) {
    const double share = shares[kind * kTiers + tier];
    if (share >= kLeastShown) {
      parts.push_back(
          absl::StrFormat("%s %.3g %%", TierName(static_cast<Tier>(tier)), 100 * share));
    }
  }
  return absl::StrJoin(parts, ", ");
}

std::string PhaseText(const PlanPhase& phase) {
  std::vector<std::string> lanes;
  for (const PlanLane& lane : phase.lanes) {
    if (lane.seconds > kLeastShown * phase.seconds) {
      lanes.push_back(absl::StrCat(lane.name, " ", DurationText(lane.seconds),
                                   lane.serial ? " (not hidden)" : ""));
    }
  }
  return absl::StrCat(phase.name, ", ", DurationText(phase.seconds), ": ",
                      absl::StrJoin(lanes, ", "));
}

std::string MemoryText(const PlanTier& tier) {
  return absl::StrCat(BytesText(tier.bytes), " of ", BytesText(tier.capacity_bytes), " (", tier.row,
                      ")");
}

std::string RejectionText(const PlanRejection& rejection) {
  if (!rejection.slowdown) {
    return absl::StrCat(rejection.what, ": ", rejection.why);
  }
  if (*rejection.slowdown < kLeastShown) {
    return absl::StrCat(rejection.what, ": not faster; ", rejection.why);
  }
  return absl::StrFormat("%s: takes %.3g %% longer; %s", rejection.what, 100 * *rejection.slowdown,
                         rejection.why);
}

Json ChoiceToJson(const BlockChoice& choice) {
  return {{"block_requests", choice.block_requests},
          {"batch_requests", choice.batch_requests},
          {"chunk_tokens", choice.chunk_tokens},
          {"weights", DTypeName(choice.weights)},
          {"kv", DTypeName(choice.kv)},
          {"attention", choice.host_attention ? "host" : "device"}};
}

Json PhaseToJson(const PlanPhase& phase) {
  Json lanes = Json::array();
  for (const PlanLane& lane : phase.lanes) {
    lanes.push_back({{"lane", lane.name}, {"seconds", lane.seconds}, {"hidden", !lane.serial}});
  }
  return {{"phase", phase.name},
          {"seconds", phase.seconds},
          {"longest", phase.longest},
          {"lanes", std::move(lanes)}};
}

Json SharesToJson(const Shares& shares) {
  Json json = Json::object();
  for (size_t kind = 0; kind < kTiers; ++kind) {
    for (size_t tier = 0; tier < kTiers; ++tier) {
      json[kJsonKinds[kind]][TierName(static_cast<Tier>(tier))] = shares[kind * kTiers + tier];
    }
  }
  return json;
}

}  // namespace

std::string PlanText(const Plan& plan) {
  std::string text;
  AppendLine(text, "block", ChoiceText(plan.choice));
  for (size_t kind = 0; kind < kTiers; ++kind) {
    AppendLine(text, kKinds[kind], SharesText(plan.shares, kind));
  }
  AppendLine(text, "time",
             absl::StrFormat("%s for %d requests; %.4g generated and %.4g prompt tokens/s; a "
                             "request is held for %s",
                             DurationText(plan.seconds), plan.requests, plan.output_tokens_per_s,
                             plan.prompt_tokens_per_s, DurationText(plan.held_seconds)));
  for (const PlanPhase& phase : plan.phases) {
    AppendLine(text, "phase", PhaseText(phase));
  }
  for (const PlanTier& tier : plan.tiers) {
    AppendLine(text, TierName(tier.tier), MemoryText(tier));
  }
  AppendLine(text, "binding", plan.binding);
  for (const PlanRelief& relief : plan.reliefs) {
    AppendLine(text, "relief",
               absl::StrFormat("%s would give %+.3g %%", relief.what, 100 * relief.gain));
  }
  for (const PlanRejection& rejection : plan.rejections) {
    AppendLine(text, "rejected", RejectionText(rejection));
  }
  return text;
}

std::string PlanJson(const Plan& plan) {
  Json json = {{"choice", ChoiceToJson(plan.choice)},
               {"shares", SharesToJson(plan.shares)},
               {"requests", plan.requests},
               {"seconds", plan.seconds},
               {"held_seconds", plan.held_seconds},
               {"output_tokens_per_s", plan.output_tokens_per_s},
               {"prompt_tokens_per_s", plan.prompt_tokens_per_s},
               {"binding", plan.binding},
               {"phases", Json::array()},
               {"tiers", Json::array()},
               {"reliefs", Json::array()},
               {"rejections", Json::array()},
               {"linear_programs", plan.num_programs}};
  for (const PlanPhase& phase : plan.phases) {
    json["phases"].push_back(PhaseToJson(phase));
  }
  for (const PlanTier& tier : plan.tiers) {
    json["tiers"].push_back(
        {{"tier", TierName(tier.tier)},
         {"row", tier.row},
         {"bytes", tier.bytes},
         {"capacity_bytes", tier.capacity_bytes},
         {"seconds_per_gib", plan.seconds_per_gib[static_cast<size_t>(tier.tier)]}});
  }
  for (const PlanRelief& relief : plan.reliefs) {
    json["reliefs"].push_back({{"what", relief.what}, {"gain", relief.gain}});
  }
  for (const PlanRejection& rejection : plan.rejections) {
    Json entry = {{"what", rejection.what},
                  {"choice", ChoiceToJson(rejection.choice)},
                  {"slowdown", nullptr},
                  {"why", rejection.why}};
    if (rejection.slowdown) {
      entry["slowdown"] = *rejection.slowdown;
    }
    json["rejections"].push_back(std::move(entry));
  }
  return json.dump(-1, ' ', true, Json::error_handler_t::replace) + "\n";
}

}  // namespace nightshift
