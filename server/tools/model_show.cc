#include "server/tools/model_show.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/model/tensor_names.h"
#include "engine/model/weight_loader.h"
#include "engine/text/tokenizer_spec.h"
#include "kernels/base/status_macros.h"
#include "kernels/group_format.h"

namespace nightshift {
namespace {

// Members keep the order in which a person reads them.
using Json = nlohmann::ordered_json;

constexpr char kSecondRounding[] =
    "quantised weights are rounded a second time, to bf16, when a job runs in bf16; f32 keeps them";

constexpr char kPacked[] =
    "integer groups are multiplied as they are stored, expanded a block at a time";

constexpr char kExpansion[] =
    "super-blocks have the source's values; loading expands them to the compute type";

std::string HashText(uint64_t hash) {
  return absl::StrFormat("%016x", hash);
}

struct WeightTotals {
  int64_t parameters = 0;
  int64_t active_parameters = 0;  // that one token uses: of the experts, those that it is routed to
  bool has_groups = false;
  bool has_super_blocks = false;
  std::map<std::string, int64_t> bytes_by_type;
  // The types of the parts of a model, as a person calls these.
  std::map<std::string, std::set<std::string>> types_by_part;
  // Of those types that GGUF blocks became: bytes by the type that they had there.
  std::map<std::string, std::map<std::string, int64_t>> bytes_by_source_type;
  int64_t f32_bytes = 0;  // in memory
  int64_t bf16_bytes = 0;
};

std::string PartOf(const TensorEntry& tensor) {
  if (tensor.layout == TensorLayout::kVector) {
    return "norms and biases";
  }
  if (IsTable(tensor.name)) {
    return "embedding";
  }
  return tensor.name == "head" ? "head" : "layers";
}

WeightTotals TotalsOf(const PackManifest& manifest) {
  WeightTotals totals;
  int64_t expert_parameters = 0;
  for (const TensorEntry& tensor : manifest.tensors) {
    totals.parameters += tensor.outputs * tensor.inputs;
    if (absl::StrContains(tensor.name, ".experts.")) {
      expert_parameters += tensor.outputs * tensor.inputs;
    }
    const bool is_group = GroupFormatOf(tensor.dtype).has_value();
    totals.has_groups = totals.has_groups || is_group;
    totals.has_super_blocks = totals.has_super_blocks || (!is_group && !IsFloat(tensor.dtype));
    totals.types_by_part[PartOf(tensor)].insert(DTypeName(tensor.dtype));
    for (const ShardEntry& shard : tensor.shards) {
      totals.bytes_by_type[DTypeName(tensor.dtype)] += shard.bytes;
      if (!tensor.source_type.empty()) {
        totals.bytes_by_source_type[DTypeName(tensor.dtype)][tensor.source_type] += shard.bytes;
      }
    }
    const bool vector = tensor.layout == TensorLayout::kVector;
    const int64_t vector_bytes = tensor.outputs * FloatBytes(DType::kF32);
    totals.f32_bytes += vector ? vector_bytes : LoadedBytes(tensor, ComputeType::kF32);
    totals.bf16_bytes += vector ? vector_bytes : LoadedBytes(tensor, ComputeType::kBF16);
  }
  totals.active_parameters = totals.parameters;
  if (const std::optional<ExpertConfig>& experts = manifest.config.experts) {
    // All experts of a model have one size.
    totals.active_parameters -=
        expert_parameters / experts->count * (experts->count - experts->per_token);
  }
  return totals;
}

Json TokenizerToJson(const TokenizerSpec& spec) {
  return {{"model", spec.model},
          {"tokens", spec.tokens.size()},
          {"merges", spec.merges.size()},
          {"added_tokens", spec.added_tokens.size()},
          {"adds_bos", spec.add_bos}};
}

absl::StatusOr<Json> ModelToJson(const Pack& pack) {
  const PackManifest& manifest = pack.manifest();
  const ModelConfig& config = manifest.config;
  const WeightTotals totals = TotalsOf(manifest);
  Json json = {{"name", manifest.model_name},
               {"digest", HashText(manifest.digest)},
               {"architecture", config.architecture},
               {"family", config.family},
               {"parameters", totals.parameters},
               {"active_parameters", totals.active_parameters},
               {"layers", config.num_layers},
               {"width", config.model_width},
               {"ffn_width", config.ffn_width},
               {"experts", nullptr},
               {"heads", config.num_heads},
               {"kv_heads", config.num_kv_heads},
               {"head_width", config.head_width},
               {"vocabulary", config.vocabulary},
               {"tied_head", config.tied_head},
               {"context_tokens", config.context_tokens},
               {"window", nullptr},
               {"bos_token", config.bos_token},
               {"eos_tokens", config.eos_tokens},
               {"weight_bytes_by_type", totals.bytes_by_type},
               {"weight_bytes_by_source_type", totals.bytes_by_source_type},
               {"weight_types_by_part", totals.types_by_part},
               {"extent_bytes", manifest.extent_bytes},
               {"memory_bytes", {{"f32", totals.f32_bytes}, {"bf16", totals.bf16_bytes}}},
               {"multiplied_as_stored", totals.has_groups},
               {"expanded_when_loaded", totals.has_super_blocks},
               {"second_rounding_in_bf16", totals.has_groups || totals.has_super_blocks},
               {"tokenizer", nullptr},
               {"chat_template_bytes", nullptr},
               {"source_format", manifest.source_format},
               {"sources", Json::array()}};
  if (config.sliding_window > 0) {
    json["window"] = {
        {"tokens", config.sliding_window},
        {"layers", std::count(config.sliding_layers.begin(), config.sliding_layers.end(), true)}};
  }
  if (const std::optional<ExpertConfig>& experts = config.experts) {
    json["experts"] = {{"count", experts->count},
                       {"per_token", experts->per_token},
                       {"ffn_width", experts->ffn_width},
                       {"layers", experts->num_layers_with_experts()}};
  }
  if (manifest.has_tokenizer) {
    ASSIGN_OR_RETURN(const std::string text, pack.ReadTokenizerJson());
    ASSIGN_OR_RETURN(const TokenizerSpec spec, TokenizerSpecFromJson(text));
    json["tokenizer"] = TokenizerToJson(spec);
  }
  if (manifest.has_chat_template) {
    ASSIGN_OR_RETURN(const std::string text, pack.ReadChatTemplate());
    json["chat_template_bytes"] = text.size();
  }
  for (const FileDigest& source : manifest.sources) {
    json["sources"].push_back(
        {{"name", source.name}, {"bytes", source.bytes}, {"xxh3", HashText(source.xxh3)}});
  }
  return json;
}

std::string Mebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / (1 << 20));
}

void AppendLine(std::string& text, const char* label, const std::string& value) {
  absl::StrAppend(&text, absl::StrFormat("%-16s %s\n", label, value));
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

std::string TokenizerLine(const Json& tokenizer) {
  return tokenizer.is_null()
             ? "none: takes token ids only"
             : absl::StrCat(tokenizer["model"].get<std::string>(), ", ",
                            tokenizer["tokens"].get<int64_t>(), " tokens, ",
                            tokenizer["merges"].get<int64_t>(), " merges, ",
                            tokenizer["added_tokens"].get<int64_t>(), " added tokens");
}

// What the tensors of a pack's type were in GGUF: ", from "Q5_0" 1.0 MiB, "Q8_0" 2.0 MiB".
std::string SourceTypes(const Json& json, const std::string& type) {
  const Json& all = json["weight_bytes_by_source_type"];
  const auto sources = all.find(type);
  if (sources == all.end()) {
    return "";
  }
  std::string text;
  for (const auto& [source_type, bytes] : sources->items()) {
    absl::StrAppend(&text, text.empty() ? ", from " : ", ", Dump(source_type), " ",
                    Mebibytes(bytes.get<int64_t>()));
  }
  return text;
}

// "embedding I8G64; layers U4G64; norms and biases F32".
std::string TypesLine(const Json& types_by_part) {
  std::string text;
  for (const auto& [part, types] : types_by_part.items()) {
    absl::StrAppend(&text, text.empty() ? "" : "; ", part);
    for (const Json& type : types) {
      absl::StrAppend(&text, type == types.front() ? " " : ", ", type.get<std::string>());
    }
  }
  return text;
}

// Names and texts from the source pass through Dump, so control characters reach no terminal.
std::string ModelToText(const Json& json) {
  std::string text;
  AppendLine(text, "model", Dump(json["name"]));
  AppendLine(text, "digest", json["digest"].get<std::string>());
  AppendLine(text, "architecture",
             absl::StrCat(Dump(json["architecture"]), ", family ", Dump(json["family"])));
  const Json& experts = json["experts"];
  AppendLine(text, "parameters",
             absl::StrCat(Dump(json["parameters"]),
                          experts.is_null() ? ""
                                            : absl::StrCat(", of which a token uses ",
                                                           Dump(json["active_parameters"]))));
  AppendLine(
      text, "shape",
      absl::StrCat(Dump(json["layers"]), " layers, width ", Dump(json["width"]), ", ffn width ",
                   Dump(json["ffn_width"]), ", ", Dump(json["heads"]), " heads of ",
                   Dump(json["head_width"]), ", ", Dump(json["kv_heads"]), " kv heads"));
  if (!experts.is_null()) {
    AppendLine(text, "experts",
               absl::StrCat(Dump(experts["per_token"]), " of ", Dump(experts["count"]),
                            " for each token, ffn width ", Dump(experts["ffn_width"]), ", in ",
                            Dump(experts["layers"]), " of the layers"));
  }
  AppendLine(
      text, "vocabulary",
      absl::StrCat(Dump(json["vocabulary"]),
                   json["tied_head"].get<bool>() ? ", head tied to the embedding" : ", own head"));
  const Json& window = json["window"];
  AppendLine(
      text, "context",
      absl::StrCat(Dump(json["context_tokens"]), " tokens",
                   window.is_null() ? ""
                                    : absl::StrCat(", a window of ", Dump(window["tokens"]), " in ",
                                                   Dump(window["layers"]), " of the layers")));
  AppendLine(text, "bos, eos",
             absl::StrCat(Dump(json["bos_token"]), ", ", Dump(json["eos_tokens"])));
  for (const auto& [type, bytes] : json["weight_bytes_by_type"].items()) {
    AppendLine(text, "weights",
               absl::StrCat(type, " ", Mebibytes(bytes.get<int64_t>()), SourceTypes(json, type)));
  }
  AppendLine(text, "types", TypesLine(json["weight_types_by_part"]));
  const Json& memory = json["memory_bytes"];
  AppendLine(text, "memory",
             absl::StrCat(Mebibytes(memory["f32"].get<int64_t>()), " in f32, ",
                          Mebibytes(memory["bf16"].get<int64_t>()), " in bf16"));
  if (json["multiplied_as_stored"].get<bool>()) {
    AppendLine(text, "computing", kPacked);
  }
  if (json["expanded_when_loaded"].get<bool>()) {
    AppendLine(text, "loading", kExpansion);
  }
  if (json["second_rounding_in_bf16"].get<bool>()) {
    AppendLine(text, "rounding", kSecondRounding);
  }
  AppendLine(text, "tokenizer", TokenizerLine(json["tokenizer"]));
  const Json& chat_template = json["chat_template_bytes"];
  AppendLine(text, "chat template",
             chat_template.is_null() ? "none: takes raw prompts only"
                                     : absl::StrCat(Dump(chat_template), " bytes"));
  for (const Json& source : json["sources"]) {
    AppendLine(text, "source",
               absl::StrCat(Dump(source["name"]), " ", Dump(source["bytes"]), " bytes, xxh3 ",
                            source["xxh3"].get<std::string>()));
  }
  return text;
}

}  // namespace

absl::StatusOr<std::string> DescribeModel(const Pack& pack, ShowFormat format) {
  ASSIGN_OR_RETURN(const Json json, ModelToJson(pack));
  return format == ShowFormat::kJson ? absl::StrCat(Dump(json), "\n") : ModelToText(json);
}

absl::StatusOr<std::string> ShowModel(const std::string& path, ShowFormat format) {
  ASSIGN_OR_RETURN(const std::unique_ptr<Pack> pack, Pack::Open(path));
  return DescribeModel(*pack, format);
}

}  // namespace nightshift
