#include "engine/model/huggingface_config.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/strict_json.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr char kConfigFile[] = "config.json";
constexpr char kGenerationFile[] = "generation_config.json";
constexpr int64_t kAnyInteger = INT64_MAX;  // ValidateModelConfig has the real bounds.

// A token id: an integer below `vocabulary`; negative ones mean "none" in some published files.
absl::Status AppendToken(const Json& json, int64_t vocabulary, const char* file, const char* name,
                         std::vector<int32_t>& tokens) {
  const bool integer = json.is_number_integer();
  if (integer && !json.is_number_unsigned()) {
    return absl::OkStatus();
  }
  if (!integer || json.get<uint64_t>() >= static_cast<uint64_t>(vocabulary)) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": ", name, " is not a token id below vocab_size ", vocabulary));
  }
  const int32_t token = json.get<int32_t>();
  if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
    tokens.push_back(token);
  }
  return absl::OkStatus();
}

// A member that is an id, a list of ids, or not there.
absl::Status AppendTokens(const Json& config, int64_t vocabulary, const char* file,
                          const char* name, std::vector<int32_t>& tokens) {
  const auto member = config.find(name);
  if (member == config.end() || member->is_null()) {
    return absl::OkStatus();
  }
  if (!member->is_array()) {
    return AppendToken(*member, vocabulary, file, name, tokens);
  }
  for (const Json& token : *member) {
    RETURN_IF_ERROR(AppendToken(token, vocabulary, file, name, tokens));
  }
  return absl::OkStatus();
}

absl::Status ReadTokens(const Json& config_json, const Json& generation_json, ModelConfig& config) {
  std::vector<int32_t> bos;
  const int64_t vocabulary = config.vocabulary;
  RETURN_IF_ERROR(AppendTokens(config_json, vocabulary, kConfigFile, "bos_token_id", bos));
  config.bos_token = bos.empty() ? -1 : bos.front();
  RETURN_IF_ERROR(AppendTokens(generation_json, vocabulary, kGenerationFile, "eos_token_id",
                               config.eos_tokens));
  return AppendTokens(config_json, vocabulary, kConfigFile, "eos_token_id", config.eos_tokens);
}

// Width of a head: as given (never derived where it is), else width / heads.
int64_t ReadHeadWidth(JsonReader& reader, const ModelConfig& config) {
  if (reader.Has("head_dim")) {
    return reader.Integer("head_dim", 1, kAnyInteger, 1);
  }
  if (config.model_width % config.num_heads != 0) {
    reader.Refuse("hidden_size", absl::StrCat(config.model_width, " is not a multiple of the ",
                                              config.num_heads, " heads, and head_dim is missing"));
  }
  return config.model_width / config.num_heads;
}

// The text model's configuration of a model that also takes images: text_config over the defaults,
// with the end ids of the whole model.
absl::StatusOr<Json> TextConfig(const Json& json, const char* defaults) {
  const Json& text_config = json["text_config"];
  if (!text_config.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(kConfigFile, ": text_config is not an object"));
  }
  Json text = Json::parse(defaults, nullptr, false);
  text.update(text_config);
  for (const char* name : {"bos_token_id", "eos_token_id", "quantization_config"}) {
    if (json.contains(name)) {
      text[name] = json[name];
    }
  }
  return text;
}

}  // namespace

absl::StatusOr<SourceModel> SourceModelFromHuggingFace(const std::string& config_json,
                                                       const std::string& generation_config_json) {
  ASSIGN_OR_RETURN(Json json, ParseStrictJson(config_json, kConfigFile));
  Json generation = Json::object();
  if (!generation_config_json.empty()) {
    ASSIGN_OR_RETURN(generation, ParseStrictJson(generation_config_json, kGenerationFile));
  }
  ASSIGN_OR_RETURN(const Family* const family, FamilyOfConfig(json, kConfigFile));
  SourceModel model;
  if (family->text_defaults != nullptr && json.contains("text_config")) {
    ASSIGN_OR_RETURN(json, TextConfig(json, family->text_defaults));
    model.has_image_encoder = true;
    model.notes.push_back("the image encoder is left out: the pack takes text only");
  }
  JsonReader reader(json, kConfigFile);
  if (reader.Has("quantization_config")) {
    reader.Refuse("quantization_config",
                  "is set: quantised Hugging Face checkpoints are not "
                  "supported; import the original or a GGUF file");
  }
  ModelConfig& config = model.config;
  config.family = family->name;
  config.architecture = family->architectures.front();
  config.vocabulary = reader.RequiredInteger("vocab_size", 1, INT32_MAX);
  config.num_layers = reader.RequiredInteger("num_hidden_layers", 1, kMaxLayers);
  config.model_width = reader.RequiredInteger("hidden_size", 1, kAnyInteger);
  config.num_heads = reader.RequiredInteger("num_attention_heads", 1, kAnyInteger);
  config.head_width = ReadHeadWidth(reader, config);
  if (!reader.Has("max_position_embeddings") && family->default_context_tokens > 0) {
    config.context_tokens = family->default_context_tokens;
  } else {
    config.context_tokens = reader.RequiredInteger("max_position_embeddings", 1, kAnyInteger);
  }
  if (reader.Has("tie_word_embeddings")) {
    model.tied_head = reader.Bool("tie_word_embeddings", false);
  }
  family->set_shape(config);
  family->read_config(reader, json, model);
  RETURN_IF_ERROR(reader.status());
  RETURN_IF_ERROR(ReadTokens(json, generation, config));
  RETURN_IF_ERROR(ValidateModelConfig(config));
  return model;
}

}  // namespace nightshift
