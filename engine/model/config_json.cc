// ModelConfig as JSON (pack_format.md section 3).
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/model/config.h"
#include "engine/model/config_limits.h"
#include "engine/model/strict_json.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

template <typename Enum>
struct Named {
  const char* name;
  Enum value;
};
constexpr std::array kNorms = {Named<NormKind>{"rms", NormKind::kRms},
                               Named<NormKind>{"layer", NormKind::kLayer}};
constexpr std::array kPositions = {Named<PositionKind>{"rope", PositionKind::kRope},
                                   Named<PositionKind>{"learned", PositionKind::kLearned}};
constexpr std::array kScalings = {Named<RopeScaling>{"none", RopeScaling::kNone},
                                  Named<RopeScaling>{"linear", RopeScaling::kLinear},
                                  Named<RopeScaling>{"llama3", RopeScaling::kLlama3},
                                  Named<RopeScaling>{"yarn", RopeScaling::kYarn},
                                  Named<RopeScaling>{"divisors", RopeScaling::kDivisors}};
constexpr std::array kQkNorms = {Named<QkNorm>{"none", QkNorm::kNone},
                                 Named<QkNorm>{"head", QkNorm::kHead},
                                 Named<QkNorm>{"row", QkNorm::kRow}};
constexpr std::array kActivations = {Named<Activation>{"relu", Activation::kRelu},
                                     Named<Activation>{"silu", Activation::kSilu},
                                     Named<Activation>{"gelu_tanh", Activation::kGeluTanh},
                                     Named<Activation>{"gelu_erf", Activation::kGeluErf}};

template <typename Table, typename Enum>
const char* NameOf(const Table& table, Enum value) {
  for (const auto& row : table) {
    if (row.value == value) {
      return row.name;
    }
  }
  return "none";
}

template <typename Table>
auto ValueOf(const Table& table, const char* field, JsonReader& reader) {
  const std::string name = reader.RequiredText(field);
  for (const auto& row : table) {
    if (name == row.name) {
      return row.value;
    }
  }
  reader.Refuse(field, "is not a value of this version");
  return table.front().value;
}

absl::Status Refused(const std::string& problem) {
  return absl::InvalidArgumentError(absl::StrCat("model config: ", problem));
}

Json RopeToJson(const RopeConfig& rope) {
  Json json = {{"theta", rope.theta},
               {"rotary_width", rope.rotary_width},
               {"scaling", NameOf(kScalings, rope.scaling)}};
  if (rope.scaling == RopeScaling::kLinear || rope.scaling == RopeScaling::kLlama3 ||
      rope.scaling == RopeScaling::kYarn) {
    json["factor"] = rope.factor;
  }
  if (rope.scaling == RopeScaling::kLlama3) {
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    json["original_context_tokens"] = rope.original_context_tokens;
  }
  if (rope.scaling == RopeScaling::kYarn) {
    json["beta_fast"] = rope.beta_fast;
    json["beta_slow"] = rope.beta_slow;
    json["truncate"] = rope.truncate;
    json["original_context_tokens"] = rope.original_context_tokens;
  }
  if (rope.magnitude != 1.0) {
    json["magnitude"] = rope.magnitude;
  }
  if (rope.scaling == RopeScaling::kDivisors) {
    json["divisors"] = rope.divisors;
  }
  return json;
}

absl::StatusOr<RopeConfig> RopeFromJson(const Json& json) {
  if (!json.is_object()) {
    return Refused("rope is not an object");
  }
  JsonReader reader(json, "model config: rope");
  RopeConfig rope;
  rope.theta = reader.RequiredNumber("theta", 0.0, kMaxNumber);
  rope.rotary_width = reader.RequiredInteger("rotary_width", 2, kMaxHeadWidth);
  rope.scaling = ValueOf(kScalings, "scaling", reader);
  rope.factor = reader.Number("factor", 0.0, kMaxNumber, rope.factor);
  rope.low_freq_factor = reader.Number("low_freq_factor", 0.0, kMaxNumber, rope.low_freq_factor);
  rope.high_freq_factor = reader.Number("high_freq_factor", 0.0, kMaxNumber, rope.high_freq_factor);
  rope.original_context_tokens = reader.Integer("original_context_tokens", 0, kMaxContext, 0);
  rope.beta_fast = reader.Number("beta_fast", 0.0, kMaxNumber, rope.beta_fast);
  rope.beta_slow = reader.Number("beta_slow", 0.0, kMaxNumber, rope.beta_slow);
  rope.truncate = reader.Bool("truncate", true);
  rope.magnitude = reader.Number("magnitude", 0.0, kMaxNumber, 1.0);
  RETURN_IF_ERROR(reader.status());
  if (rope.scaling != RopeScaling::kDivisors) {
    return rope;
  }
  const auto divisors = json.find("divisors");
  if (divisors == json.end() || !divisors->is_array()) {
    return Refused("rope.divisors is not an array");
  }
  for (const Json& divisor : *divisors) {
    if (!divisor.is_number()) {
      return Refused("rope.divisors holds something that is not a number");
    }
    rope.divisors.push_back(divisor.get<float>());
  }
  return rope;
}

absl::StatusOr<std::vector<int32_t>> EosTokensFromJson(const Json& json) {
  const auto tokens = json.find("eos_tokens");
  if (tokens == json.end() || !tokens->is_array() || tokens->size() > kMaxEosTokens) {
    return Refused(absl::StrCat("eos_tokens is not an array of at most ", kMaxEosTokens));
  }
  std::vector<int32_t> result;
  for (const Json& token : *tokens) {
    if (!token.is_number_unsigned() || token.get<uint64_t>() >= kMaxVocabulary) {
      return Refused("eos_tokens holds something that is not a token id");
    }
    result.push_back(token.get<int32_t>());
  }
  return result;
}

// Writes what only some models have; the others' manifests do not name it.
void AddOptionalFields(const ModelConfig& config, Json& json) {
  const auto add = [&json](const char* name, const auto& value, const auto& usual) {
    if (value != usual) {
      json[name] = value;
    }
  };
  add("branch_norm", config.branch_norm, false);
  add("parallel_branches", config.parallel_branches, false);
  add("shared_norm", config.shared_norm, false);
  add("attention_scale", config.attention_scale, 0.0F);
  add("attention_softcap", config.attention_softcap, 0.0F);
  add("logit_softcap", config.logit_softcap, 0.0F);
  add("embedding_multiplier", config.embedding_multiplier, 1.0F);
  add("residual_multiplier", config.residual_multiplier, 1.0F);
  add("logit_multiplier", config.logit_multiplier, 1.0F);
  if (config.qk_norm != QkNorm::kNone) {
    json["qk_norm"] = NameOf(kQkNorms, config.qk_norm);
  }
  if (config.sliding_window > 0) {
    json["sliding_window"] = config.sliding_window;
    json["sliding_layers"] = config.sliding_layers;
  }
  if (config.sliding_rope) {
    json["sliding_rope"] = RopeToJson(*config.sliding_rope);
  }
  if (config.experts) {
    json["experts"] = {{"count", config.experts->count},
                       {"per_token", config.experts->per_token},
                       {"ffn_width", config.experts->ffn_width},
                       {"normalise", config.experts->normalise},
                       {"layers", config.experts->layers}};
  }
}

void ReadOptionalFields(JsonReader& reader, ModelConfig& config) {
  const auto number = [&reader](const char* name, float usual) {
    return static_cast<float>(reader.Number(name, 0.0, kMaxNumber, static_cast<double>(usual)));
  };
  config.branch_norm = reader.Bool("branch_norm", false);
  config.parallel_branches = reader.Bool("parallel_branches", false);
  config.shared_norm = reader.Bool("shared_norm", false);
  config.attention_scale = number("attention_scale", 0.0F);
  config.attention_softcap = number("attention_softcap", 0.0F);
  config.logit_softcap = number("logit_softcap", 0.0F);
  config.embedding_multiplier = number("embedding_multiplier", 1.0F);
  config.residual_multiplier = number("residual_multiplier", 1.0F);
  config.logit_multiplier = number("logit_multiplier", 1.0F);
  if (reader.Has("qk_norm")) {
    config.qk_norm = ValueOf(kQkNorms, "qk_norm", reader);
  }
  if (reader.Has("sliding_window")) {
    config.sliding_window = reader.RequiredInteger("sliding_window", 1, kMaxContext);
  }
}

// An array of one boolean a layer. `field` names it in messages.
absl::StatusOr<std::vector<bool>> LayersFromJson(const Json& json, const char* field) {
  if (!json.is_array() || json.size() > kMaxLayers) {
    return Refused(absl::StrCat(field, " is not an array of at most ", kMaxLayers, " booleans"));
  }
  std::vector<bool> result;
  for (const Json& layer : json) {
    if (!layer.is_boolean()) {
      return Refused(absl::StrCat(field, " holds something that is neither true nor false"));
    }
    result.push_back(layer.get<bool>());
  }
  return result;
}

absl::StatusOr<ExpertConfig> ExpertsFromJson(const Json& json) {
  if (!json.is_object()) {
    return Refused("experts is not an object");
  }
  JsonReader reader(json, "model config: experts");
  ExpertConfig experts;
  experts.count = reader.RequiredInteger("count", 1, kMaxExperts);
  experts.per_token = reader.RequiredInteger("per_token", 1, kMaxExperts);
  experts.ffn_width = reader.RequiredInteger("ffn_width", 1, kMaxWidth);
  experts.normalise = reader.RequiredBool("normalise");
  RETURN_IF_ERROR(reader.status());
  ASSIGN_OR_RETURN(experts.layers, LayersFromJson(json.value("layers", Json()), "experts.layers"));
  return experts;
}

}  // namespace

std::string ModelConfigToJson(const ModelConfig& config) {
  Json json = {{"family", config.family},
               {"architecture", config.architecture},
               {"vocabulary", config.vocabulary},
               {"num_layers", config.num_layers},
               {"model_width", config.model_width},
               {"embedding_width", config.embedding_width},
               {"num_heads", config.num_heads},
               {"num_kv_heads", config.num_kv_heads},
               {"head_width", config.head_width},
               {"ffn_width", config.ffn_width},
               {"context_tokens", config.context_tokens},
               {"norm", NameOf(kNorms, config.norm)},
               {"norm_epsilon", config.norm_epsilon},
               {"pre_norm", config.pre_norm},
               {"final_norm", config.final_norm},
               {"activation", NameOf(kActivations, config.activation)},
               {"gated_ffn", config.gated_ffn},
               {"position", NameOf(kPositions, config.position)},
               {"tied_head", config.tied_head},
               {"bos_token", config.bos_token},
               {"eos_tokens", config.eos_tokens}};
  if (config.position == PositionKind::kRope) {
    json["rope"] = RopeToJson(config.rope);
  } else {
    json["learned_position_offset"] = config.learned_position_offset;
  }
  AddOptionalFields(config, json);
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

absl::StatusOr<ModelConfig> ModelConfigFromJson(const std::string& text) {
  ASSIGN_OR_RETURN(const Json json, ParseStrictJson(text, "model config"));
  JsonReader reader(json, "model config");
  ModelConfig config;
  config.family = reader.RequiredText("family");
  config.architecture = reader.RequiredText("architecture");
  config.vocabulary = reader.RequiredInteger("vocabulary", 1, kMaxVocabulary);
  config.num_layers = reader.RequiredInteger("num_layers", 1, kMaxLayers);
  config.model_width = reader.RequiredInteger("model_width", 1, kMaxWidth);
  config.embedding_width = reader.RequiredInteger("embedding_width", 1, kMaxWidth);
  config.num_heads = reader.RequiredInteger("num_heads", 1, kMaxHeads);
  config.num_kv_heads = reader.RequiredInteger("num_kv_heads", 1, kMaxHeads);
  config.head_width = reader.RequiredInteger("head_width", 1, kMaxHeadWidth);
  config.ffn_width = reader.RequiredInteger("ffn_width", 1, kMaxWidth);
  config.context_tokens = reader.RequiredInteger("context_tokens", 1, kMaxContext);
  config.norm = ValueOf(kNorms, "norm", reader);
  config.norm_epsilon = static_cast<float>(reader.RequiredNumber("norm_epsilon", 0.0, 1.0));
  config.pre_norm = reader.RequiredBool("pre_norm");
  config.final_norm = reader.RequiredBool("final_norm");
  config.activation = ValueOf(kActivations, "activation", reader);
  config.gated_ffn = reader.RequiredBool("gated_ffn");
  config.position = ValueOf(kPositions, "position", reader);
  config.tied_head = reader.RequiredBool("tied_head");
  config.bos_token =
      static_cast<int32_t>(reader.RequiredInteger("bos_token", -1, kMaxVocabulary - 1));
  config.learned_position_offset = reader.Integer("learned_position_offset", 0, 1024, 0);
  ReadOptionalFields(reader, config);
  RETURN_IF_ERROR(reader.status());
  if (config.sliding_window > 0) {
    ASSIGN_OR_RETURN(config.sliding_layers,
                     LayersFromJson(json.value("sliding_layers", Json()), "sliding_layers"));
  }
  ASSIGN_OR_RETURN(config.eos_tokens, EosTokensFromJson(json));
  if (config.position == PositionKind::kRope) {
    ASSIGN_OR_RETURN(config.rope, RopeFromJson(json.value("rope", Json())));
  }
  if (reader.Has("experts")) {
    ASSIGN_OR_RETURN(config.experts, ExpertsFromJson(json["experts"]));
  }
  if (reader.Has("sliding_rope")) {
    ASSIGN_OR_RETURN(config.sliding_rope, RopeFromJson(json["sliding_rope"]));
  }
  RETURN_IF_ERROR(ValidateModelConfig(config));
  return config;
}

}  // namespace nightshift
