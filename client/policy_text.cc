#include "client/policy_text.h"

#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "client/console.h"
#include "client/progress.h"

namespace nightshift {
namespace {

using Json = nlohmann::ordered_json;

// Less of a share is not told.
constexpr double kLeastShown = 5e-4;

void AddField(std::string& text, absl::string_view key, absl::string_view value) {
  absl::StrAppendFormat(&text, "%-11s  %s\n", key, OneLine(value));
}

std::string Line(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

// "device 80 %, disk 20 %"
std::string SharesText(const v1::PolicyShares& shares) {
  std::vector<std::string> parts;
  for (const auto& [tier, share] :
       {std::pair("device", shares.device()), std::pair("host", shares.host()),
        std::pair("disk", shares.disk())}) {
    if (share >= kLeastShown) {
      parts.push_back(absl::StrFormat("%s %.3g %%", tier, 100 * share));
    }
  }
  return absl::StrJoin(parts, ", ");
}

std::string HardwareText(const v1::PolicyHardware& hardware) {
  return absl::StrCat(hardware.name(),
                      hardware.date().empty() ? "" : absl::StrCat(" of ", hardware.date()),
                      hardware.source().empty() ? "" : absl::StrCat(", ", hardware.source()));
}

std::string FactorsText(const v1::PolicyHardware& hardware) {
  std::vector<std::string> parts;
  for (const v1::PolicyHardware::Factor& factor : hardware.factors()) {
    parts.push_back(absl::StrFormat("%s takes %.3g of the measured time (%d sweeps)", factor.lane(),
                                    factor.factor(), factor.sweeps()));
  }
  return absl::StrJoin(parts, ", ");
}

std::string TierText(const v1::PolicyTier& tier) {
  std::string text = absl::StrCat(ByteSize(tier.bytes()), " of ", ByteSize(tier.capacity_bytes()));
  if (tier.seconds_per_gib() > 0.0) {
    absl::StrAppendFormat(&text, "; one more GiB would save %.3g s", tier.seconds_per_gib());
  }
  return text;
}

void AddPlan(const v1::Policy& policy, std::string& text) {
  AddField(text, "for",
           policy.requests() > 0
               ? absl::StrFormat("%s requests of %.0f prompt and %.0f output tokens",
                                 GroupedNumber(policy.requests()), policy.prompt_tokens(),
                                 policy.output_tokens())
               : "what all tenants have queued, of which admins are told how much it is");
  AddField(
      text, "block",
      absl::StrCat(GroupedNumber(policy.block_requests()), " requests, ",
                   GroupedNumber(policy.sweep_tokens()), " tokens a sweep in batches of ",
                   GroupedNumber(policy.batch_tokens()), ", prompts ",
                   policy.chunk_tokens() > 0
                       ? absl::StrCat("in chunks of ", GroupedNumber(policy.chunk_tokens()))
                       : "whole",
                   "; ", policy.schedule(), " schedule, attention on the ", policy.attention()));
  for (const v1::PolicyShares& shares : policy.shares()) {
    AddField(text, shares.what(),
             shares.what() == "weights" ? absl::StrCat(policy.weights(), ": ", SharesText(shares))
                                        : SharesText(shares));
  }
  for (const v1::PolicyTier& tier : policy.tiers()) {
    AddField(text, tier.tier(), TierText(tier));
  }
  AddField(text, "predicted",
           absl::StrFormat("%s%.4g tokens/s (%.4g of prompts, %.4g generated); %s works most",
                           policy.requests() > 0
                               ? ShortDuration(absl::Seconds(policy.seconds())) + "; "
                               : "",
                           policy.tokens_per_s(), policy.prompt_tokens_per_s(),
                           policy.output_tokens_per_s(), policy.bottleneck()));
  AddField(text, "binding", policy.binding());
  if (!policy.shadow_price().empty()) {
    AddField(text, "relief", policy.shadow_price());
  }
  if (policy.is_default()) {
    AddField(text, "options", "the daemon's own: no plan was found that is faster");
  }
}

Json PolicyToJson(const v1::Policy& policy) {
  Json json = {{"model", policy.model()},
               {"planned", policy.planned()},
               {"reason", policy.reason().empty() ? Json(nullptr) : Json(policy.reason())},
               {"hardware", nullptr},
               {"plan", nullptr}};
  if (policy.has_hardware()) {
    const v1::PolicyHardware& hardware = policy.hardware();
    Json factors = Json::object();
    for (const v1::PolicyHardware::Factor& factor : hardware.factors()) {
      factors[factor.lane()] = {{"factor", factor.factor()}, {"sweeps", factor.sweeps()}};
    }
    json["hardware"] = {
        {"name", hardware.name()},
        {"source", hardware.source()},
        {"date", hardware.date()},
        {"stale", hardware.stale().empty() ? Json(nullptr) : Json(hardware.stale())},
        {"factors", factors}};
  }
  if (!policy.planned()) {
    return json;
  }
  Json shares = Json::object();
  for (const v1::PolicyShares& share : policy.shares()) {
    shares[share.what()] = {
        {"device", share.device()}, {"host", share.host()}, {"disk", share.disk()}};
  }
  Json tiers = Json::array();
  for (const v1::PolicyTier& tier : policy.tiers()) {
    tiers.push_back({{"tier", tier.tier()},
                     {"bytes", tier.bytes()},
                     {"capacity_bytes", tier.capacity_bytes()},
                     {"seconds_per_gib", tier.seconds_per_gib()}});
  }
  // Nothing where that is for admins only.
  const auto of_all = [&](auto value) { return policy.requests() > 0 ? Json(value) : Json(); };
  json["plan"] = {{"requests", of_all(policy.requests())},
                  {"prompt_tokens", of_all(policy.prompt_tokens())},
                  {"output_tokens", of_all(policy.output_tokens())},
                  {"block_requests", policy.block_requests()},
                  {"sweep_tokens", policy.sweep_tokens()},
                  {"batch_tokens", policy.batch_tokens()},
                  {"chunk_tokens", policy.chunk_tokens()},
                  {"schedule", policy.schedule()},
                  {"attention", policy.attention()},
                  {"compute_type", policy.compute_type()},
                  {"kv_type", policy.kv_type()},
                  {"sparse_attention", policy.sparse_attention()},
                  {"weights", policy.weights()},
                  {"shares", shares},
                  {"is_default", policy.is_default()},
                  {"seconds", of_all(policy.seconds())},
                  {"tokens_per_s", policy.tokens_per_s()},
                  {"prompt_tokens_per_s", policy.prompt_tokens_per_s()},
                  {"output_tokens_per_s", policy.output_tokens_per_s()},
                  {"bottleneck", policy.bottleneck()},
                  {"tiers", tiers},
                  {"binding", policy.binding()},
                  {"shadow_price",
                   policy.shadow_price().empty() ? Json(nullptr) : Json(policy.shadow_price())}};
  return json;
}

std::string AlternativeText(const v1::PolicyAlternative& alternative) {
  if (!alternative.has_slowdown()) {
    return absl::StrCat(alternative.what(), ": ", alternative.why());
  }
  return alternative.slowdown() < kLeastShown
             ? absl::StrCat(alternative.what(), ": not faster; ", alternative.why())
             : absl::StrFormat("%s: takes %.3g %% longer; %s", alternative.what(),
                               100 * alternative.slowdown(), alternative.why());
}

// Nothing where all values are attended to.
std::string SparseText(const v1::Policy& policy) {
  const bool is_sparse = policy.sparse_attention() > 0.0 && policy.sparse_attention() < 1.0;
  return is_sparse ? absl::StrCat(", sparse attention ", policy.sparse_attention()) : "";
}

}  // namespace

std::string PolicyText(const v1::Policy& policy) {
  std::string text;
  AddField(text, "model",
           policy.model().empty() ? "none is loaded"
                                  : absl::StrCat(policy.model(), ", ", policy.compute_type(),
                                                 policy.kv_type().starts_with("int")
                                                     ? ", keys and values " + policy.kv_type()
                                                     : "",
                                                 SparseText(policy)));
  if (!policy.reason().empty()) {
    AddField(text, "no plan", policy.reason());
  }
  if (policy.has_hardware()) {
    AddField(text, "hardware", HardwareText(policy.hardware()));
    if (!policy.hardware().stale().empty()) {
      AddField(text, "stale", policy.hardware().stale());
    }
    if (policy.hardware().factors_size() > 0) {
      AddField(text, "observed", FactorsText(policy.hardware()));
    }
  }
  if (policy.planned()) {
    AddPlan(policy, text);
  }
  return text;
}

std::string PolicyJson(const v1::Policy& policy) {
  return Line(PolicyToJson(policy));
}

std::string ExplanationText(const v1::ExplainPolicyResponse& explanation) {
  std::string text = PolicyText(explanation.policy());
  for (int i = 1; i < explanation.reliefs_size(); ++i) {  // the first is the policy's own
    AddField(text, "relief",
             absl::StrFormat("%s would give %+.3g %%", explanation.reliefs(i).what(),
                             100 * explanation.reliefs(i).gain()));
  }
  for (const v1::PolicyAlternative& alternative : explanation.alternatives()) {
    AddField(text, "rejected", AlternativeText(alternative));
  }
  return text;
}

std::string ExplanationJson(const v1::ExplainPolicyResponse& explanation) {
  Json json = PolicyToJson(explanation.policy());
  Json reliefs = Json::array();
  for (const v1::PolicyRelief& relief : explanation.reliefs()) {
    reliefs.push_back({{"what", relief.what()}, {"gain", relief.gain()}});
  }
  Json alternatives = Json::array();
  for (const v1::PolicyAlternative& alternative : explanation.alternatives()) {
    alternatives.push_back(
        {{"what", alternative.what()},
         {"block_requests", alternative.block_requests()},
         {"batch_requests", alternative.batch_requests()},
         {"chunk_tokens", alternative.chunk_tokens()},
         {"slowdown", alternative.has_slowdown() ? Json(alternative.slowdown()) : Json(nullptr)},
         {"why", alternative.why()}});
  }
  json["reliefs"] = reliefs;
  json["alternatives"] = alternatives;
  return Line(json);
}

}  // namespace nightshift
