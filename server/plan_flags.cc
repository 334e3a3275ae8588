#include "server/plan_flags.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status WrongFlag(const char* key, const std::string& text, const char* must) {
  return absl::InvalidArgumentError(absl::StrCat("--", key, " is \"", text, "\", must be ", must));
}

absl::Status ReadDuration(const char* key, const std::string& text,
                          std::optional<double>& seconds) {
  if (text.empty()) {
    return absl::OkStatus();
  }
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration() ||
      duration == absl::InfiniteDuration()) {
    return WrongFlag(key, text, "a time, as 6h, 90m or 1h30m");
  }
  seconds = absl::ToDoubleSeconds(duration);
  return absl::OkStatus();
}

// Three shares from the first one of a kind on.
absl::Status ReadThreeShares(const char* key, const std::string& text, ShareId first,
                             PlanModelOptions& options) {
  TierShares shares;
  RETURN_IF_ERROR(ReadShareFlag(key, text, shares));
  if (shares.is_given()) {
    const auto at = static_cast<size_t>(first);
    options.shares[at] = shares.of_device();
    options.shares[at + 1] = shares.of_host();
    options.shares[at + 2] = std::max(0.0, 1 - shares.of_device() - shares.of_host());
  }
  return absl::OkStatus();
}

absl::Status ReadForm(const std::string& text, ModelForm& form) {
  if (text == "nightshift") {
    form = ModelForm::kNightshift;
  } else if (text == "paper") {
    form = ModelForm::kPaper;
  } else if (text == "flexgen") {
    form = ModelForm::kFlexGen;
  } else {
    return WrongFlag("model-form", text, "nightshift, paper or flexgen");
  }
  return absl::OkStatus();
}

absl::Status ReadAttention(const std::string& text, std::optional<bool>& host_attention) {
  if (text == "host" || text == "device") {
    host_attention = text == "host";
    return absl::OkStatus();
  }
  return text == "any" ? absl::OkStatus() : WrongFlag("attention", text, "any, device or host");
}

}  // namespace

std::vector<TierFlag> ListPlanFlags(PlanFlags& flags) {
  return {
      {"model-form", &flags.form,
       "cost model: nightshift, of this engine; paper or flexgen, as FlexGen's authors published "
       "and released it"},
      {"deadline", &flags.deadline, "time for the whole job, as 6h"},
      {"max-latency", &flags.max_latency, "time for which a request may be held, as 20m"},
      {"weights", &flags.weights,
       "types that weights may be stored in, as bf16,u4g64 (default: the pack's, else bf16)"},
      {"kv", &flags.kv, "the same of keys and values (default: bf16)"},
      {"attention", &flags.attention,
       "of decoding requests over keys beside the device: any, device or host"},
      {"weight-shares", &flags.weight_shares,
       "per cent of weights on the device and on the host, as 20,30; the rest is on disk (default: "
       "as it is best)"},
      {"kv-shares", &flags.kv_shares, "the same of keys and values"},
      {"activation-shares", &flags.activation_shares, "the same of activations"},
  };
}

absl::Status ReadPlanFlags(const PlanFlags& flags, PlanModelOptions& options) {
  RETURN_IF_ERROR(ReadForm(flags.form, options.form));
  RETURN_IF_ERROR(ReadDuration("deadline", flags.deadline, options.deadline_s));
  RETURN_IF_ERROR(ReadDuration("max-latency", flags.max_latency, options.max_held_s));
  ASSIGN_OR_RETURN(options.weights, ParseTypes("weights", flags.weights));
  ASSIGN_OR_RETURN(options.kv, ParseTypes("kv", flags.kv));
  RETURN_IF_ERROR(ReadAttention(flags.attention, options.host_attention));
  RETURN_IF_ERROR(
      ReadThreeShares("weight-shares", flags.weight_shares, ShareId::kWeightsDevice, options));
  RETURN_IF_ERROR(ReadThreeShares("kv-shares", flags.kv_shares, ShareId::kKvDevice, options));
  return ReadThreeShares("activation-shares", flags.activation_shares, ShareId::kActivationsDevice,
                         options);
}

}  // namespace nightshift
