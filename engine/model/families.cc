#include "engine/model/families.h"

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace nightshift {
namespace {

constexpr std::array kLlamaModel = {
    TensorNames{"embed", "model.embed_tokens.weight", "token_embd.weight"},
    TensorNames{"final_norm.weight", "model.norm.weight", "output_norm.weight"},
    TensorNames{"head", "lm_head.weight", "output.weight"},
};
constexpr std::array kLlamaLayer = {
    TensorNames{"attention_norm.weight", "input_layernorm.weight", "attn_norm.weight"},
    TensorNames{"q.weight", "self_attn.q_proj.weight", "attn_q.weight"},
    TensorNames{"q.bias", "self_attn.q_proj.bias", "attn_q.bias"},
    TensorNames{"k.weight", "self_attn.k_proj.weight", "attn_k.weight"},
    TensorNames{"k.bias", "self_attn.k_proj.bias", "attn_k.bias"},
    TensorNames{"v.weight", "self_attn.v_proj.weight", "attn_v.weight"},
    TensorNames{"v.bias", "self_attn.v_proj.bias", "attn_v.bias"},
    TensorNames{"o.weight", "self_attn.o_proj.weight", "attn_output.weight"},
    TensorNames{"o.bias", "self_attn.o_proj.bias", "attn_output.bias"},
    TensorNames{"ffn_norm.weight", "post_attention_layernorm.weight", "ffn_norm.weight"},
    TensorNames{"gate.weight", "mlp.gate_proj.weight", "ffn_gate.weight"},
    TensorNames{"gate.bias", "mlp.gate_proj.bias", "ffn_gate.bias"},
    TensorNames{"up.weight", "mlp.up_proj.weight", "ffn_up.weight"},
    TensorNames{"up.bias", "mlp.up_proj.bias", "ffn_up.bias"},
    TensorNames{"down.weight", "mlp.down_proj.weight", "ffn_down.weight"},
    TensorNames{"down.bias", "mlp.down_proj.bias", "ffn_down.bias"},
};

constexpr std::array kOptModel = {
    TensorNames{"embed", "model.decoder.embed_tokens.weight", ""},
    TensorNames{"positions", "model.decoder.embed_positions.weight", ""},
    TensorNames{"project_in", "model.decoder.project_in.weight", ""},
    TensorNames{"project_out", "model.decoder.project_out.weight", ""},
    TensorNames{"final_norm.weight", "model.decoder.final_layer_norm.weight", ""},
    TensorNames{"final_norm.bias", "model.decoder.final_layer_norm.bias", ""},
    TensorNames{"head", "lm_head.weight", ""},
};
// OPT's layer calls the norm of its MLP `final_layer_norm`; the model's own has the same name.
constexpr std::array kOptLayer = {
    TensorNames{"attention_norm.weight", "self_attn_layer_norm.weight", ""},
    TensorNames{"attention_norm.bias", "self_attn_layer_norm.bias", ""},
    TensorNames{"q.weight", "self_attn.q_proj.weight", ""},
    TensorNames{"q.bias", "self_attn.q_proj.bias", ""},
    TensorNames{"k.weight", "self_attn.k_proj.weight", ""},
    TensorNames{"k.bias", "self_attn.k_proj.bias", ""},
    TensorNames{"v.weight", "self_attn.v_proj.weight", ""},
    TensorNames{"v.bias", "self_attn.v_proj.bias", ""},
    TensorNames{"o.weight", "self_attn.out_proj.weight", ""},
    TensorNames{"o.bias", "self_attn.out_proj.bias", ""},
    TensorNames{"ffn_norm.weight", "final_layer_norm.weight", ""},
    TensorNames{"ffn_norm.bias", "final_layer_norm.bias", ""},
    TensorNames{"up.weight", "fc1.weight", ""},
    TensorNames{"up.bias", "fc1.bias", ""},
    TensorNames{"down.weight", "fc2.weight", ""},
    TensorNames{"down.bias", "fc2.bias", ""},
};

constexpr int64_t kAnyInteger = INT64_MAX;  // ValidateModelConfig has the real bounds.
constexpr double kAnyNumber = 1e30;

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

// Reads `rope_scaling` (or `rope_parameters`, which holds the base too).
void ReadRope(JsonReader& reader, const nlohmann::json& config_json, RopeConfig& rope) {
  rope.theta = reader.Number("rope_theta", 0.0, kAnyNumber, 10000.0);
  const char* const name = reader.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (!reader.Has(name)) {
    return;
  }
  const nlohmann::json& json = config_json[name];
  if (!json.is_object()) {
    reader.Refuse(name, "is not an object");
    return;
  }
  JsonReader scaling(json, name);
  rope.theta = scaling.Number("rope_theta", 0.0, kAnyNumber, rope.theta);
  const std::string type = scaling.Text("rope_type", scaling.Text("type", "default"));
  if (type == "linear" || type == "llama3") {
    rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
    rope.factor = scaling.RequiredNumber("factor", 0.0, kAnyNumber);
  } else if (type != "default") {
    reader.Refuse(name, absl::StrCat("has the type ", type.substr(0, 64),
                                     "; default, linear and llama3 are supported"));
  }
  if (type == "llama3") {
    rope.low_freq_factor = scaling.RequiredNumber("low_freq_factor", 0.0, kAnyNumber);
    rope.high_freq_factor = scaling.RequiredNumber("high_freq_factor", 0.0, kAnyNumber);
    rope.original_context_tokens =
        scaling.RequiredInteger("original_max_position_embeddings", 1, kAnyInteger);
  }
  if (!scaling.status().ok()) {
    reader.Refuse(name, absl::StrCat("is refused: ", scaling.status().message()));
  }
}

void ReadLlamaConfig(JsonReader& reader, const nlohmann::json& config_json, SourceModel& model) {
  ModelConfig& config = model.config;
  config.embedding_width = config.model_width;
  config.ffn_width = reader.RequiredInteger("intermediate_size", 1, kAnyInteger);
  config.num_kv_heads = reader.Integer("num_key_value_heads", 1, kAnyInteger, config.num_heads);
  config.norm = NormKind::kRms;
  config.norm_epsilon = static_cast<float>(reader.Number("rms_norm_eps", 0.0, 1.0, 1e-6));
  config.activation = ReadActivation(reader, "hidden_act", "silu");
  config.gated_ffn = true;
  config.position = PositionKind::kRope;
  if (reader.Number("partial_rotary_factor", 0.0, 1.0, 1.0) != 1.0) {
    reader.Refuse("partial_rotary_factor", "is not 1, which this family has");
  }
  config.rope.rotary_width = config.head_width;
  ReadRope(reader, config_json, config.rope);
  model.attention_bias = ReadOptionalBool(reader, "attention_bias");
  model.ffn_bias = ReadOptionalBool(reader, "mlp_bias");
}

void ReadOptConfig(JsonReader& reader, const nlohmann::json&, SourceModel& model) {
  ModelConfig& config = model.config;
  config.embedding_width =
      reader.Integer("word_embed_proj_dim", 1, kAnyInteger, config.model_width);
  config.ffn_width = reader.RequiredInteger("ffn_dim", 1, kAnyInteger);
  config.num_kv_heads = config.num_heads;
  config.norm = NormKind::kLayer;
  config.norm_epsilon = 1e-5F;  // Not in the file: torch's default.
  config.pre_norm = reader.Bool("do_layer_norm_before", true);
  config.final_norm = config.pre_norm && !reader.Bool("_remove_final_layer_norm", false);
  config.activation = ReadActivation(reader, "activation_function", "relu");
  config.gated_ffn = false;
  config.position = PositionKind::kLearned;
  config.learned_position_offset = 2;
  model.attention_bias = model.ffn_bias = reader.Bool("enable_bias", true);
  model.plain_norms = !reader.Bool("layer_norm_elementwise_affine", true);
}

constexpr std::array kLlamaArchitectures = {"LlamaForCausalLM"};
constexpr std::array kOptArchitectures = {"OPTForCausalLM"};

constexpr std::array kFamilies = {
    Family{.name = "llama",
           .architectures = kLlamaArchitectures,
           .model_type = "llama",
           .gguf_architecture = "llama",
           .huggingface_layer = "model.layers.",
           .model_names = kLlamaModel,
           .layer_names = kLlamaLayer,
           .read_config = ReadLlamaConfig,
           .gguf_pairs_rope_rows = true},
    Family{.name = "opt",
           .architectures = kOptArchitectures,
           .model_type = "opt",
           .gguf_architecture = nullptr,
           .huggingface_layer = "model.decoder.layers.",
           .model_names = kOptModel,
           .layer_names = kOptLayer,
           .read_config = ReadOptConfig,
           .gguf_pairs_rope_rows = false},
};

absl::Status Unsupported(const std::string& what, const std::string& found) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": architecture ", found.substr(0, 128),
                   " is not supported; supported: ", SupportedFamilies()));
}

}  // namespace

const char* SourceFormatName(SourceFormat format) {
  return format == SourceFormat::kSafetensors ? "safetensors" : "gguf";
}

const Family* FindFamily(absl::string_view name) {
  for (const Family& family : kFamilies) {
    if (name == family.name) {
      return &family;
    }
  }
  return nullptr;
}

absl::StatusOr<const Family*> FamilyOfConfig(const nlohmann::json& config_json,
                                             const std::string& what) {
  const auto architectures = config_json.find("architectures");
  if (architectures != config_json.end() && architectures->is_array() && !architectures->empty()) {
    const nlohmann::json& first = architectures->front();
    const std::string name = first.is_string() ? first.get<std::string>() : "(not a string)";
    for (const Family& family : kFamilies) {
      for (const char* architecture : family.architectures) {
        if (name == architecture) {
          return &family;
        }
      }
    }
    return Unsupported(what, name);
  }
  JsonReader reader(config_json, what);
  const std::string model_type = reader.Text("model_type", "(none)");
  for (const Family& family : kFamilies) {
    if (model_type == family.model_type) {
      return &family;
    }
  }
  return Unsupported(what, model_type);
}

absl::StatusOr<const Family*> FamilyOfGguf(const std::string& architecture) {
  for (const Family& family : kFamilies) {
    if (family.gguf_architecture != nullptr && architecture == family.gguf_architecture) {
      return &family;
    }
  }
  return Unsupported("general.architecture", architecture);
}

std::string SupportedFamilies() {
  std::string text;
  for (const Family& family : kFamilies) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", family.architectures.front(), " (",
                    family.name, family.gguf_architecture == nullptr ? "; not as GGUF)" : ")");
  }
  return text;
}

}  // namespace nightshift
