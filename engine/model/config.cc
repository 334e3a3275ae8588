#include "engine/model/config.h"

#include <array>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"

#include "engine/model/config_limits.h"
#include "engine/model/families.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

absl::Status Bounded(const char* field, int64_t value, int64_t low, int64_t high) {
  if (value < low || value > high) {
    return absl::InvalidArgumentError(
        absl::StrCat("model config: ", field, " is ", value, ", not from ", low, " to ", high));
  }
  return absl::OkStatus();
}

absl::Status Refused(const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("model config: ", problem));
}

// Written so that NaN is refused too.
bool Positive(double value) {
  return value > 0.0 && std::isfinite(value);
}

absl::Status ValidateSizes(const ModelConfig& config) {
  RETURN_IF_ERROR(Bounded("vocabulary", config.vocabulary, 1, kMaxVocabulary));
  RETURN_IF_ERROR(Bounded("num_layers", config.num_layers, 1, kMaxLayers));
  RETURN_IF_ERROR(Bounded("model_width", config.model_width, 1, kMaxWidth));
  RETURN_IF_ERROR(Bounded("embedding_width", config.embedding_width, 1, kMaxWidth));
  RETURN_IF_ERROR(Bounded("num_heads", config.num_heads, 1, kMaxHeads));
  RETURN_IF_ERROR(Bounded("num_kv_heads", config.num_kv_heads, 1, config.num_heads));
  RETURN_IF_ERROR(Bounded("head_width", config.head_width, 1, kMaxHeadWidth));
  RETURN_IF_ERROR(Bounded("ffn_width", config.ffn_width, 1, kMaxWidth));
  RETURN_IF_ERROR(Bounded("context_tokens", config.context_tokens, 1, kMaxContext));
  RETURN_IF_ERROR(Bounded("learned_position_offset", config.learned_position_offset, 0, 1024));
  if (config.num_heads % config.num_kv_heads != 0) {
    return Refused(absl::StrCat("num_heads ", config.num_heads,
                                " is not a multiple of num_kv_heads ", config.num_kv_heads));
  }
  return absl::OkStatus();
}

absl::Status ValidateTokens(const ModelConfig& config) {
  RETURN_IF_ERROR(Bounded("bos_token", config.bos_token, -1, config.vocabulary - 1));
  if (config.eos_tokens.size() > kMaxEosTokens) {
    return Refused(absl::StrCat(config.eos_tokens.size(), " eos_tokens, at most ", kMaxEosTokens));
  }
  for (const int32_t token : config.eos_tokens) {
    RETURN_IF_ERROR(Bounded("eos_tokens", token, 0, config.vocabulary - 1));
  }
  return absl::OkStatus();
}

absl::Status ValidateRope(const ModelConfig& config, const RopeConfig& rope) {
  RETURN_IF_ERROR(Bounded("rope.rotary_width", rope.rotary_width, 2, config.head_width));
  if (rope.rotary_width % 2 != 0) {
    return Refused(absl::StrCat("rope.rotary_width ", rope.rotary_width, " is odd"));
  }
  if (!Positive(rope.theta) || !Positive(rope.factor) || !Positive(rope.magnitude)) {
    return Refused("rope.theta, rope.factor or rope.magnitude is not a positive number");
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    if (!Positive(rope.low_freq_factor) || !Positive(rope.high_freq_factor) ||
        rope.high_freq_factor <= rope.low_freq_factor) {
      return Refused("rope.high_freq_factor is not above a positive rope.low_freq_factor");
    }
  }
  if (rope.scaling == RopeScaling::kYarn) {
    if (!Positive(rope.beta_slow) || !Positive(rope.beta_fast) ||
        rope.beta_fast <= rope.beta_slow || rope.theta <= 1.0) {
      return Refused(
          "rope.beta_fast is not above a positive rope.beta_slow, or rope.theta is not above 1");
    }
  }
  if (rope.scaling == RopeScaling::kLlama3 || rope.scaling == RopeScaling::kYarn) {
    RETURN_IF_ERROR(
        Bounded("rope.original_context_tokens", rope.original_context_tokens, 1, kMaxContext));
  }
  const bool by_divisors = rope.scaling == RopeScaling::kDivisors;
  const int64_t wanted = by_divisors ? rope.rotary_width / 2 : 0;
  if (static_cast<int64_t>(rope.divisors.size()) != wanted) {
    return Refused(
        absl::StrCat("rope.divisors has ", rope.divisors.size(), " numbers, not ", wanted));
  }
  for (const float divisor : rope.divisors) {
    if (!Positive(divisor)) {
      return Refused("rope.divisors holds a number that is not positive");
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateWindow(const ModelConfig& config) {
  RETURN_IF_ERROR(Bounded("sliding_window", config.sliding_window, 0, kMaxContext));
  const size_t wanted = config.sliding_window > 0 ? static_cast<size_t>(config.num_layers) : 0;
  if (config.sliding_layers.size() != wanted) {
    return Refused(absl::StrCat("sliding_layers has ", config.sliding_layers.size(), " of ", wanted,
                                " layers"));
  }
  if (config.sliding_rope && config.sliding_window == 0) {
    return Refused("sliding_rope is there without a sliding_window");
  }
  return absl::OkStatus();
}

absl::Status ValidateMultipliers(const ModelConfig& config) {
  const std::array multipliers = {std::pair{"embedding_multiplier", config.embedding_multiplier},
                                  std::pair{"residual_multiplier", config.residual_multiplier},
                                  std::pair{"logit_multiplier", config.logit_multiplier}};
  for (const auto& [field, value] : multipliers) {
    if (!Positive(static_cast<double>(value))) {
      return Refused(absl::StrCat(field, " is not a positive number"));
    }
  }
  const std::array optional = {std::pair{"attention_scale", config.attention_scale},
                               std::pair{"attention_softcap", config.attention_softcap},
                               std::pair{"logit_softcap", config.logit_softcap}};
  for (const auto& [field, value] : optional) {
    if (value != 0.0F && !Positive(static_cast<double>(value))) {
      return Refused(absl::StrCat(field, " is neither 0 nor a positive number"));
    }
  }
  return absl::OkStatus();
}

absl::Status ValidateNorms(const ModelConfig& config) {
  if (!(config.norm_epsilon >= 0.0F && config.norm_epsilon <= 1.0F)) {
    return Refused("norm_epsilon is not from 0 to 1");
  }
  if (config.parallel_branches && (!config.pre_norm || config.branch_norm)) {
    return Refused("parallel_branches have their norms before them and nowhere else");
  }
  if (config.shared_norm && !config.parallel_branches) {
    return Refused("shared_norm is there without parallel_branches");
  }
  return absl::OkStatus();
}

// Layers with experts have Llama's order of norms, branches and gate.
absl::Status ValidateExpertLayers(const ModelConfig& config) {
  if (!config.experts) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ValidateExperts(*config.experts, config.num_layers));
  if (config.norm != NormKind::kRms || !config.pre_norm || config.branch_norm ||
      config.parallel_branches || !config.gated_ffn || config.residual_multiplier != 1.0F) {
    return Refused("experts are there in a model whose layers are not those of Llama");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ValidateModelConfig(const ModelConfig& config) {
  if (FindFamily(config.family) == nullptr) {
    return Refused(absl::StrCat("family ", config.family.substr(0, 64), " is not one of ",
                                SupportedFamilies()));
  }
  RETURN_IF_ERROR(ValidateSizes(config));
  RETURN_IF_ERROR(ValidateTokens(config));
  RETURN_IF_ERROR(ValidateNorms(config));
  RETURN_IF_ERROR(ValidateWindow(config));
  RETURN_IF_ERROR(ValidateMultipliers(config));
  RETURN_IF_ERROR(ValidateExpertLayers(config));
  if (config.position != PositionKind::kRope) {
    return absl::OkStatus();
  }
  RETURN_IF_ERROR(ValidateRope(config, config.rope));
  return config.sliding_rope ? ValidateRope(config, *config.sliding_rope) : absl::OkStatus();
}

}  // namespace nightshift
