#include "server/tools/source_texts.h"

#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/gguf.h"
#include "engine/model/source_file.h"
#include "engine/model/strict_json.h"
#include "kernels/base/status_macros.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr int64_t kMaxTokenizerBytes = 128 << 20;
constexpr int64_t kMaxConfigBytes = 16 << 20;
constexpr char kTemplateMember[] = "chat_template";

// A file's text, or nothing when it is not there.
absl::StatusOr<std::optional<std::string>> ReadIfThere(const std::string& path, int64_t max_bytes) {
  auto text = ReadTextFile(path, max_bytes);
  if (absl::IsNotFound(text.status())) {
    return std::optional<std::string>();
  }
  RETURN_IF_ERROR(text.status());
  return std::optional<std::string>(*std::move(text));
}

// The template among several named ones: the only one, or "default".
std::optional<std::string> ChooseTemplate(const Json& templates) {
  for (const Json& entry : templates) {
    if (!entry.is_object() || !entry.contains("template") || !entry["template"].is_string()) {
      continue;
    }
    const bool usual = entry.contains("name") && entry["name"] == "default";
    if (usual || templates.size() == 1) {
      return entry["template"].get<std::string>();
    }
  }
  return std::nullopt;
}

// The member chat_template of a JSON file, or nothing when file or member is not there.
absl::StatusOr<std::optional<std::string>> TemplateOfJson(const std::string& path) {
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfThere(path, kMaxConfigBytes));
  if (!text) {
    return std::optional<std::string>();
  }
  ASSIGN_OR_RETURN(const Json json, ParseStrictJson(*text, path));
  const auto member = json.find(kTemplateMember);
  if (member == json.end() || member->is_null()) {
    return std::optional<std::string>();
  }
  std::optional<std::string> chosen;
  if (member->is_string()) {
    chosen = member->get<std::string>();
  } else if (member->is_array()) {
    chosen = ChooseTemplate(*member);
  }
  if (!chosen) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": ", kTemplateMember, " is neither a text nor a list with one named default"));
  }
  return chosen;
}

// Reads a GGUF token id; -1 when the key is not there.
int32_t TokenId(JsonReader& reader, const char* key) {
  return static_cast<int32_t>(reader.Integer(key, 0, INT32_MAX, -1));
}

absl::StatusOr<std::vector<int32_t>> TokenTypes(const GgufMetadata& metadata, const char* key) {
  std::vector<int32_t> types;
  const auto array = metadata.integer_arrays.find(key);
  if (array == metadata.integer_arrays.end()) {
    return types;
  }
  for (const int64_t type : array->second) {
    if (type < 0 || type > INT32_MAX) {
      return absl::InvalidArgumentError(absl::StrCat("GGUF metadata: ", key, " holds ", type));
    }
    types.push_back(static_cast<int32_t>(type));
  }
  return types;
}

std::vector<std::string> Strings(const GgufMetadata& metadata, const char* key) {
  const auto array = metadata.string_arrays.find(key);
  return array == metadata.string_arrays.end() ? std::vector<std::string>() : array->second;
}

absl::StatusOr<std::optional<TokenizerSpec>> TokenizerOfGguf(const GgufMetadata& metadata) {
  JsonReader reader(metadata.scalars, "GGUF metadata");
  GgufTokenizerMetadata tokenizer;
  tokenizer.architecture = reader.Text("general.architecture", "");
  tokenizer.model = reader.Text("tokenizer.ggml.model", "");
  tokenizer.pre = reader.Text("tokenizer.ggml.pre", "");
  tokenizer.bos_token = TokenId(reader, "tokenizer.ggml.bos_token_id");
  tokenizer.eos_token = TokenId(reader, "tokenizer.ggml.eos_token_id");
  tokenizer.eot_token = TokenId(reader, "tokenizer.ggml.eot_token_id");
  tokenizer.unknown_token = TokenId(reader, "tokenizer.ggml.unknown_token_id");
  if (reader.Has("tokenizer.ggml.add_bos_token")) {
    tokenizer.add_bos = reader.Bool("tokenizer.ggml.add_bos_token", false);
  }
  if (reader.Has("tokenizer.ggml.add_space_prefix")) {
    tokenizer.add_space_prefix = reader.Bool("tokenizer.ggml.add_space_prefix", false);
  }
  tokenizer.remove_extra_whitespaces =
      reader.Bool("tokenizer.ggml.remove_extra_whitespaces", false);
  tokenizer.has_precompiled_charsmap =
      metadata.integer_arrays.contains("tokenizer.ggml.precompiled_charsmap");
  RETURN_IF_ERROR(reader.status());
  if (tokenizer.model.empty()) {
    return std::optional<TokenizerSpec>();
  }
  tokenizer.tokens = Strings(metadata, "tokenizer.ggml.tokens");
  tokenizer.merges = Strings(metadata, "tokenizer.ggml.merges");
  const auto scores = metadata.number_arrays.find("tokenizer.ggml.scores");
  if (scores != metadata.number_arrays.end()) tokenizer.scores = scores->second;
  ASSIGN_OR_RETURN(tokenizer.token_types, TokenTypes(metadata, "tokenizer.ggml.token_type"));
  ASSIGN_OR_RETURN(TokenizerSpec spec, TokenizerSpecFromGguf(tokenizer));
  return std::optional<TokenizerSpec>(std::move(spec));
}

}  // namespace

absl::StatusOr<FromFiles<TokenizerSpec>> ReadTokenizer(const Checkpoint& checkpoint,
                                                       const std::string& source) {
  FromFiles<TokenizerSpec> result;
  if (checkpoint.gguf != nullptr) {
    ASSIGN_OR_RETURN(result.value, TokenizerOfGguf(*checkpoint.gguf));
    return result;
  }
  const std::string path = absl::StrCat(source, "/tokenizer.json");
  const std::string config_path = absl::StrCat(source, "/tokenizer_config.json");
  ASSIGN_OR_RETURN(const std::optional<std::string> text, ReadIfThere(path, kMaxTokenizerBytes));
  if (!text) {
    return result;
  }
  result.files.push_back(path);
  ASSIGN_OR_RETURN(const std::optional<std::string> config,
                   ReadIfThere(config_path, kMaxConfigBytes));
  if (config) {
    result.files.push_back(config_path);
  }
  ASSIGN_OR_RETURN(result.value, TokenizerSpecFromHuggingFace(*text, config.value_or("")));
  return result;
}

absl::StatusOr<FromFiles<std::string>> ReadChatTemplate(const Checkpoint& checkpoint,
                                                        const std::string& source) {
  FromFiles<std::string> result;
  if (checkpoint.gguf != nullptr) {
    JsonReader reader(checkpoint.gguf->scalars, "GGUF metadata");
    constexpr char kKey[] = "tokenizer.chat_template";
    if (reader.Has(kKey)) {
      result.value = reader.Text(kKey, "");
    }
    RETURN_IF_ERROR(reader.status());
    return result;
  }
  const std::string jinja_path = absl::StrCat(source, "/chat_template.jinja");
  ASSIGN_OR_RETURN(result.value, ReadIfThere(jinja_path, kMaxConfigBytes));
  if (result.value) {
    result.files.push_back(jinja_path);
    return result;
  }
  for (const char* name : {"/chat_template.json", "/tokenizer_config.json"}) {
    const std::string path = absl::StrCat(source, name);
    ASSIGN_OR_RETURN(result.value, TemplateOfJson(path));
    if (result.value) {
      result.files.push_back(path);
      return result;
    }
  }
  return result;
}

}  // namespace nightshift
