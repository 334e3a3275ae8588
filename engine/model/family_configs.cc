#include "engine/model/family_configs.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/model/huggingface_rope.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr int64_t kAnyInteger = INT64_MAX;  // ValidateModelConfig has the real bounds.
constexpr double kAnyNumber = 1e30;
constexpr double kUsualTheta = 10000.0;

Activation ReadActivation(JsonReader& reader, const char* name, const char* usual) {
  const std::string text = reader.Text(name, usual);
  if (text == "relu") {
    return Activation::kRelu;
  }
  if (text == "silu" || text == "swish") {
    return Activation::kSilu;
  }
  if (text == "gelu") {
    return Activation::kGeluErf;
  }
  if (text == "gelu_new" || text == "gelu_fast" || text == "gelu_pytorch_tanh") {
    return Activation::kGeluTanh;
  }
  reader.Refuse(name, absl::StrCat("is ", text.substr(0, 64),
                                   ", not one of relu, silu, gelu, gelu_new, gelu_pytorch_tanh"));
  return Activation::kNone;
}

std::optional<bool> ReadOptionalBool(JsonReader& reader, const char* name) {
  if (!reader.Has(name)) {
    return std::nullopt;
  }
  return reader.Bool(name, false);
}

// A number that must be above 0.
float ReadPositive(JsonReader& reader, const char* name, double usual) {
  const double value = reader.Number(name, 0.0, kAnyNumber, usual);
  if (static_cast<float>(value) <= 0.0F) {
    reader.Refuse(name, "is not above 0");
  }
  return static_cast<float>(value);
}

// A cap that is `usual` where the file does not name it and none where it says null.
float ReadCap(JsonReader& reader, const Json& config_json, const char* name, double usual) {
  if (!config_json.contains(name)) {
    return static_cast<float>(usual);
  }
  return reader.Has(name) ? ReadPositive(reader, name, usual) : 0.0F;
}

void RefuseWhere(JsonReader& reader, const char* name, bool refused, bool usual) {
  if (reader.Bool(name, usual) == refused) {
    reader.Refuse(name,
                  absl::StrCat("is ", refused ? "true" : "false", ", which is not supported"));
  }
}

// Share of a head that is rotated.
void ReadPartialRotation(JsonReader& reader, const char* name, double usual, ModelConfig& config) {
  const double share = reader.Number(name, 0.0, 1.0, usual);
  config.rope.rotary_width = static_cast<int64_t>(static_cast<double>(config.head_width) * share);
}

// The sizes that Llama and most of those after it name alike.
void ReadSizes(JsonReader& reader, const char* epsilon, ModelConfig& config) {
  config.ffn_width = reader.RequiredInteger("intermediate_size", 1, kAnyInteger);
  config.num_kv_heads = reader.Integer("num_key_value_heads", 1, kAnyInteger, config.num_heads);
  config.norm_epsilon = static_cast<float>(
      reader.Number(epsilon, 0.0, 1.0, static_cast<double>(config.norm_epsilon)));
  config.activation = ReadActivation(reader, "hidden_act", "silu");
}

bool EveryLayer(int64_t) {
  return true;
}

// Qwen2 and Qwen3 name a window that counts only where use_sliding_window says so.
void ReadQwenWindow(JsonReader& reader, const Json& config_json, ModelConfig& config) {
  if (reader.Bool("use_sliding_window", false)) {
    const int64_t first = reader.Integer("max_window_layers", 0, kAnyInteger, 28);
    ReadWindow(reader, config_json, config, [first](int64_t layer) { return layer >= first; });
  }
}

// `mlp_only_layers`: numbers of layers without experts.
void ReadDenseLayers(JsonReader& reader, const Json& config_json, std::vector<bool>& layers) {
  constexpr char kName[] = "mlp_only_layers";
  if (!reader.Has(kName)) {
    return;
  }
  const Json& dense = config_json[kName];
  const auto is_layer = [&layers](const Json& number) {
    return number.is_number_unsigned() && number.get<uint64_t>() < layers.size();
  };
  if (!dense.is_array() || !std::all_of(dense.begin(), dense.end(), is_layer)) {
    reader.Refuse(kName, absl::StrCat("is not an array of layers below ", layers.size()));
    return;
  }
  for (const Json& layer : dense) {
    layers[layer.get<size_t>()] = false;
  }
}

void ReadGemmaSizes(JsonReader& reader, ModelConfig& config) {
  for (const char* name : {"head_dim", "num_key_value_heads", "sliding_window"}) {
    if (!reader.Has(name)) {
      reader.Refuse(name, "is missing");
    }
  }
  config.ffn_width = reader.RequiredInteger("intermediate_size", 1, kAnyInteger);
  config.num_kv_heads = reader.Integer("num_key_value_heads", 1, kAnyInteger, 1);
  config.norm_epsilon = static_cast<float>(reader.Number("rms_norm_eps", 0.0, 1.0, 1e-6));
  config.activation = ReadActivation(reader, "hidden_activation", "gelu_pytorch_tanh");
  config.attention_scale = static_cast<float>(
      1.0 / std::sqrt(static_cast<double>(ReadPositive(reader, "query_pre_attn_scalar", 256.0))));
}

}  // namespace

void ReadLlamaConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadSizes(reader, "rms_norm_eps", model.config);
  if (reader.Number("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    reader.Refuse("partial_rotary_factor", "is not 1, which this family has");
  }
  ReadRope(reader, config_json, kUsualTheta, model);
  model.qkv_bias = model.o_bias = ReadOptionalBool(reader, "attention_bias");
  model.ffn_bias = ReadOptionalBool(reader, "mlp_bias");
}

void ReadMistralConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadSizes(reader, "rms_norm_eps", model.config);
  ReadRope(reader, config_json, kUsualTheta, model);
  ReadWindow(reader, config_json, model.config, EveryLayer);
  model.qkv_bias = model.o_bias = model.ffn_bias = false;
}

void ReadQwen2Config(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadSizes(reader, "rms_norm_eps", model.config);
  ReadRope(reader, config_json, kUsualTheta, model);
  ReadQwenWindow(reader, config_json, model.config);
  model.qkv_bias = true;
  model.o_bias = model.ffn_bias = false;
}

void ReadQwen3Config(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadSizes(reader, "rms_norm_eps", model.config);
  ReadRope(reader, config_json, kUsualTheta, model);
  ReadQwenWindow(reader, config_json, model.config);
  model.qkv_bias = model.o_bias = reader.Bool("attention_bias", false);
  model.ffn_bias = false;
}

void ReadMixtralConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  config.norm_epsilon = 1e-5F;
  ReadSizes(reader, "rms_norm_eps", config);
  ReadRope(reader, config_json, 1e6, model);
  ReadWindow(reader, config_json, config, EveryLayer);
  model.qkv_bias = model.o_bias = model.ffn_bias = false;
  ExpertConfig experts;
  experts.count = reader.Integer("num_local_experts", 1, kMaxExperts, 8);
  experts.per_token = reader.Integer("num_experts_per_tok", 1, kMaxExperts, 2);
  experts.ffn_width = config.ffn_width;
  experts.layers.assign(static_cast<size_t>(config.num_layers), true);
  config.experts = experts;
}

void ReadQwen3MoeConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadQwen3Config(reader, config_json, model);
  ModelConfig& config = model.config;
  ExpertConfig experts;
  experts.count = reader.Integer("num_experts", 0, kMaxExperts, 128);
  experts.per_token = reader.Integer("num_experts_per_tok", 1, kMaxExperts, 8);
  experts.ffn_width = reader.Integer("moe_intermediate_size", 1, kAnyInteger, 768);
  experts.normalise = reader.Bool("norm_topk_prob", false);
  const int64_t step = reader.Integer("decoder_sparse_step", 1, kAnyInteger, 1);
  for (int64_t layer = 0; layer < config.num_layers; ++layer) {
    experts.layers.push_back((layer + 1) % step == 0);
  }
  ReadDenseLayers(reader, config_json, experts.layers);
  if (experts.count > 0 && experts.num_layers_with_experts() > 0) {
    config.experts = experts;
  }
}

void ReadGemma2Config(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  ReadGemmaSizes(reader, config);
  config.attention_softcap = ReadCap(reader, config_json, "attn_logit_softcapping", 50.0);
  config.logit_softcap = ReadCap(reader, config_json, "final_logit_softcapping", 30.0);
  ReadRope(reader, config_json, kUsualTheta, model);
  ReadWindow(reader, config_json, config, [](int64_t layer) { return layer % 2 == 0; });
  model.qkv_bias = model.o_bias = reader.Bool("attention_bias", false);
  model.ffn_bias = false;
}

void ReadGemma3Config(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  ReadGemmaSizes(reader, config);
  config.attention_softcap = ReadCap(reader, config_json, "attn_logit_softcapping", 0.0);
  config.logit_softcap = ReadCap(reader, config_json, "final_logit_softcapping", 0.0);
  RefuseWhere(reader, "use_bidirectional_attention", true, false);
  const int64_t period =
      reader.Integer("sliding_window_pattern", 1, kAnyInteger,
                     reader.Integer("_sliding_window_pattern", 1, kAnyInteger, 6));
  ReadWindow(reader, config_json, config,
             [period](int64_t layer) { return (layer + 1) % period != 0; });
  RopeConfig local = config.rope;
  local.theta = reader.Number("rope_local_base_freq", 0.0, kAnyNumber, kUsualTheta);
  const bool by_type = reader.Has("rope_parameters") &&
                       config_json["rope_parameters"].is_object() &&
                       config_json["rope_parameters"].contains("full_attention");
  if (by_type) {
    config.rope.theta = 1e6;
    ReadRopeOfLayerType(reader, config_json, "full_attention", model, config.rope);
    ReadRopeOfLayerType(reader, config_json, "sliding_attention", model, local);
  } else {
    ReadRope(reader, config_json, 1e6, model);
  }
  if (config.sliding_window > 0) {
    config.sliding_rope = local;
  }
  model.qkv_bias = model.o_bias = reader.Bool("attention_bias", false);
  model.ffn_bias = false;
}

void ReadPhi3Config(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadSizes(reader, "rms_norm_eps", model.config);
  ReadPartialRotation(reader, "partial_rotary_factor", 1.0, model.config);
  ReadRope(reader, config_json, kUsualTheta, model);
  ReadWindow(reader, config_json, model.config, EveryLayer);
  model.qkv_bias = model.o_bias = model.ffn_bias = false;
}

void ReadOlmo2Config(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ReadSizes(reader, "rms_norm_eps", model.config);
  ReadRope(reader, config_json, kUsualTheta, model);
  model.qkv_bias = model.o_bias = reader.Bool("attention_bias", false);
  model.ffn_bias = false;
}

void ReadGraniteConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  ReadSizes(reader, "rms_norm_eps", config);
  ReadRope(reader, config_json, kUsualTheta, model);
  config.attention_scale = ReadPositive(reader, "attention_multiplier", 1.0);
  config.embedding_multiplier = ReadPositive(reader, "embedding_multiplier", 1.0);
  config.residual_multiplier = ReadPositive(reader, "residual_multiplier", 1.0);
  config.logit_multiplier = 1.0F / ReadPositive(reader, "logits_scaling", 1.0);
  model.qkv_bias = model.o_bias = reader.Bool("attention_bias", false);
  model.ffn_bias = reader.Bool("mlp_bias", false);
}

void ReadStableLmConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  ReadSizes(reader, "layer_norm_eps", config);
  ReadPartialRotation(reader, "partial_rotary_factor", 0.25, config);
  ReadRope(reader, config_json, kUsualTheta, model);
  RefuseWhere(reader, "qk_layernorm", true, false);
  config.parallel_branches = config.shared_norm = reader.Bool("use_parallel_residual", false);
  model.qkv_bias = reader.Bool("use_qkv_bias", false);
  model.o_bias = model.ffn_bias = false;
}

void ReadGptNeoXConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  config.ffn_width = reader.RequiredInteger("intermediate_size", 1, kAnyInteger);
  config.num_kv_heads = config.num_heads;
  config.norm_epsilon = static_cast<float>(reader.Number("layer_norm_eps", 0.0, 1.0, 1e-5));
  config.activation = ReadActivation(reader, "hidden_act", "gelu");
  ReadPartialRotation(reader, reader.Has("rotary_pct") ? "rotary_pct" : "partial_rotary_factor",
                      0.25, config);
  ReadRope(reader, config_json, reader.Number("rotary_emb_base", 0.0, kAnyNumber, kUsualTheta),
           model);
  config.parallel_branches = reader.Bool("use_parallel_residual", true);
  model.qkv_bias = model.o_bias = reader.Bool("attention_bias", true);
  model.ffn_bias = true;
}

void ReadFalconConfig(JsonReader& reader, const Json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  config.ffn_width = reader.Integer("ffn_hidden_size", 1, kAnyInteger, 4 * config.model_width);
  config.num_kv_heads = reader.Bool("multi_query", true) ? 1 : config.num_heads;
  config.norm_epsilon = static_cast<float>(reader.Number("layer_norm_epsilon", 0.0, 1.0, 1e-5));
  config.activation = ReadActivation(reader, "activation", "gelu");
  ReadRope(reader, config_json, kUsualTheta, model);
  RefuseWhere(reader, "alibi", true, false);
  RefuseWhere(reader, "new_decoder_architecture", true, false);
  RefuseWhere(reader, "parallel_attn", false, true);
  model.qkv_bias = model.o_bias = model.ffn_bias = reader.Bool("bias", false);
}

void ReadOptConfig(JsonReader& reader, const Json&, SourceModel& model) {
  ModelConfig& config = model.config;
  config.embedding_width =
      reader.Integer("word_embed_proj_dim", 1, kAnyInteger, config.model_width);
  config.ffn_width = reader.RequiredInteger("ffn_dim", 1, kAnyInteger);
  config.num_kv_heads = config.num_heads;
  config.pre_norm = reader.Bool("do_layer_norm_before", true);
  config.final_norm = config.pre_norm && !reader.Bool("_remove_final_layer_norm", false);
  config.activation = ReadActivation(reader, "activation_function", "relu");
  model.qkv_bias = model.o_bias = model.ffn_bias = reader.Bool("enable_bias", true);
  model.plain_norms = !reader.Bool("layer_norm_elementwise_affine", true);
}

}  // namespace nightshift
