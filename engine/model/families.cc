#include "engine/model/families.h"

#include <array>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/family_configs.h"
#include "engine/model/family_gguf.h"
#include "engine/model/family_names.h"
#include "engine/model/family_shapes.h"

namespace nightshift {
namespace {

// Class names of Hugging Face.
constexpr std::array kLlama = {"LlamaForCausalLM"};
constexpr std::array kMistral = {"MistralForCausalLM"};
constexpr std::array kQwen2 = {"Qwen2ForCausalLM"};
constexpr std::array kQwen3 = {"Qwen3ForCausalLM"};
constexpr std::array kMixtral = {"MixtralForCausalLM"};
constexpr std::array kQwen3Moe = {"Qwen3MoeForCausalLM"};
constexpr std::array kGemma2 = {"Gemma2ForCausalLM"};
constexpr std::array kGemma3 = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};
constexpr std::array kPhi3 = {"Phi3ForCausalLM"};
constexpr std::array kOlmo2 = {"Olmo2ForCausalLM"};
constexpr std::array kGranite = {"GraniteForCausalLM"};
constexpr std::array kStableLm = {"StableLmForCausalLM"};
constexpr std::array kGptNeoX = {"GPTNeoXForCausalLM"};
constexpr std::array kFalcon = {"FalconForCausalLM"};
constexpr std::array kOpt = {"OPTForCausalLM"};

// What text_config of published Gemma 3 models leaves out where it is as for the 4B.
constexpr char kGemma3TextDefaults[] =
    R"({"vocab_size":262208,"num_attention_heads":8,"num_key_value_heads":4,"head_dim":256,)"
    R"("max_position_embeddings":131072,"sliding_window":4096})";

constexpr std::array kFamilies = {
    Family{.name = "llama",
           .architectures = kLlama,
           .model_type = "llama",
           .gguf_architecture = "llama",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kLlamaLayer,
           .set_shape = SetLlamaShape,
           .read_config = ReadLlamaConfig,
           .gguf_pairs_rope_rows = true},
    Family{.name = "mistral",
           .architectures = kMistral,
           .model_type = "mistral",
           .gguf_architecture = nullptr,
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kLlamaLayer,
           .set_shape = SetLlamaShape,
           .read_config = ReadMistralConfig},
    Family{.name = "qwen2",
           .architectures = kQwen2,
           .model_type = "qwen2",
           .gguf_architecture = "qwen2",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kLlamaLayer,
           .set_shape = SetLlamaShape,
           .read_config = ReadQwen2Config},
    Family{.name = "qwen3",
           .architectures = kQwen3,
           .model_type = "qwen3",
           .gguf_architecture = "qwen3",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kLlamaLayer,
           .set_shape = SetQwen3Shape,
           .read_config = ReadQwen3Config},
    Family{.name = "mixtral",
           .architectures = kMixtral,
           .model_type = "mixtral",
           .gguf_architecture = "llama",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kMixtralLayer,
           .set_shape = SetLlamaShape,
           .read_config = ReadMixtralConfig,
           .gguf_pairs_rope_rows = true,
           .has_experts = true},
    Family{.name = "qwen3_moe",
           .architectures = kQwen3Moe,
           .model_type = "qwen3_moe",
           .gguf_architecture = "qwen3moe",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kQwen3MoeLayer,
           .set_shape = SetQwen3Shape,
           .read_config = ReadQwen3MoeConfig,
           .has_experts = true},
    Family{.name = "gemma2",
           .architectures = kGemma2,
           .model_type = "gemma2",
           .gguf_architecture = "gemma2",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kGemmaLayer,
           .set_shape = SetGemma2Shape,
           .read_config = ReadGemma2Config,
           .norm_weights_less_one = true,
           .gguf_window_period = 2,
           .complete_gguf = CompleteGemmaFromGguf},
    Family{.name = "gemma3",
           .architectures = kGemma3,
           .model_type = "gemma3_text",
           .gguf_architecture = "gemma3",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kGemmaLayer,
           .set_shape = SetGemma3Shape,
           .read_config = ReadGemma3Config,
           .norm_weights_less_one = true,
           .gguf_window_period = 6,
           .complete_gguf = CompleteGemma3FromGguf,
           .text_defaults = kGemma3TextDefaults},
    Family{.name = "phi3",
           .architectures = kPhi3,
           .model_type = "phi3",
           .gguf_architecture = "phi3",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kPhi3Layer,
           .set_shape = SetLlamaShape,
           .read_config = ReadPhi3Config},
    Family{.name = "olmo2",
           .architectures = kOlmo2,
           .model_type = "olmo2",
           .gguf_architecture = "olmo2",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kGemmaLayer,
           .set_shape = SetOlmo2Shape,
           .read_config = ReadOlmo2Config},
    Family{.name = "granite",
           .architectures = kGranite,
           .model_type = "granite",
           .gguf_architecture = "granite",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kLlamaLayer,
           .set_shape = SetLlamaShape,
           .read_config = ReadGraniteConfig,
           .gguf_pairs_rope_rows = true,
           .complete_gguf = CompleteGraniteFromGguf},
    Family{.name = "stablelm",
           .architectures = kStableLm,
           .model_type = "stablelm",
           .gguf_architecture = "stablelm",
           .huggingface_layer = "model.layers.",
           .model_names = family_names::kLlamaModel,
           .layer_names = family_names::kLlamaLayer,
           .set_shape = SetStableLmShape,
           .read_config = ReadStableLmConfig,
           .complete_gguf = CompleteStableLmFromGguf},
    Family{.name = "gpt_neox",
           .architectures = kGptNeoX,
           .model_type = "gpt_neox",
           .gguf_architecture = "gptneox",
           .huggingface_layer = "gpt_neox.layers.",
           .model_names = family_names::kGptNeoXModel,
           .layer_names = family_names::kGptNeoXLayer,
           .set_shape = SetGptNeoXShape,
           .read_config = ReadGptNeoXConfig,
           .huggingface_qkv = FusedRows::kByKvHead,
           .complete_gguf = CompleteGptNeoXFromGguf},
    Family{.name = "falcon",
           .architectures = kFalcon,
           .model_type = "falcon",
           .gguf_architecture = "falcon",
           .huggingface_layer = "transformer.h.",
           .model_names = family_names::kFalconModel,
           .layer_names = family_names::kFalconLayer,
           .set_shape = SetFalconShape,
           .read_config = ReadFalconConfig,
           .huggingface_qkv = FusedRows::kByKvHead,
           .default_context_tokens = 2048},
    Family{.name = "opt",
           .architectures = kOpt,
           .model_type = "opt",
           .gguf_architecture = nullptr,
           .huggingface_layer = "model.decoder.layers.",
           .model_names = family_names::kOptModel,
           .layer_names = family_names::kOptLayer,
           .set_shape = SetOptShape,
           .read_config = ReadOptConfig},
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

absl::StatusOr<const Family*> FamilyOfGguf(const std::string& architecture, bool has_experts) {
  for (const Family& family : kFamilies) {
    if (family.gguf_architecture != nullptr && architecture == family.gguf_architecture &&
        family.has_experts == has_experts) {
      return &family;
    }
  }
  return Unsupported("general.architecture",
                     absl::StrCat(architecture.substr(0, 64), has_experts ? " with experts" : ""));
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
