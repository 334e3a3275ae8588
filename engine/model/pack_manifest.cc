#include "engine/model/pack_manifest.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "engine/model/stored_panel.h"
#include "engine/model/strict_json.h"
#include "kernels/base/checked_math.h"
#include "kernels/base/checksum.h"
#include "kernels/base/status_macros.h"
#include "kernels/tensor_view.h"

namespace nightshift {
namespace {

using Json = nlohmann::json;

constexpr char kFormatName[] = "nightshift-pack";
constexpr char kDigestField[] = "digest";
constexpr size_t kMaxSources = 20'000;
constexpr size_t kMaxSourceTypeBytes = 32;
constexpr int64_t kMaxBytes = int64_t{1} << 60;

std::string HashText(uint64_t hash) {
  return absl::StrFormat("%016x", hash);
}

std::optional<uint64_t> HashFromText(const Json& json) {
  uint64_t hash = 0;
  if (!json.is_string() || json.get_ref<const std::string&>().size() != 16 ||
      !absl::SimpleHexAtoi(json.get_ref<const std::string&>(), &hash)) {
    return std::nullopt;
  }
  return hash;
}

// The text that the digest is taken of and that is written: names sorted, no blanks, ASCII.
std::string Dump(const Json& json) {
  return json.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

uint64_t DigestOf(const std::string& text) {
  return Xxh3(std::as_bytes(std::span(text)));
}

Json FileToJson(const FileDigest& file) {
  return {{"name", file.name}, {"bytes", file.bytes}, {"xxh3", HashText(file.xxh3)}};
}

Json TensorToJson(const TensorEntry& tensor) {
  Json shards = Json::array();
  for (const ShardEntry& shard : tensor.shards) {
    shards.push_back(
        {shard.first_output, shard.outputs, shard.offset, shard.bytes, HashText(shard.xxh3)});
  }
  Json json = {{"name", tensor.name},
               {"layout", static_cast<int>(tensor.layout)},
               {"type", static_cast<int>(tensor.dtype)},
               {"outputs", tensor.outputs},
               {"inputs", tensor.inputs},
               {"shards", std::move(shards)}};
  if (!tensor.source_type.empty()) {
    json["source_type"] = tensor.source_type;
  }
  return json;
}

// Parsing state of one manifest: turns problems into DATA_LOSS statuses that name the pack.
class ManifestParser {
 public:
  explicit ManifestParser(const std::string& what) : what_(what) {}

  absl::StatusOr<PackManifest> Parse(const Json& json);

 private:
  absl::Status Bad(const std::string& problem) const {
    return absl::DataLossError(absl::StrCat(what_, ": ", problem));
  }
  absl::StatusOr<FileDigest> File(const Json& json, const char* field) const;
  absl::StatusOr<TensorEntry> Tensor(const Json& json) const;
  absl::StatusOr<ShardEntry> Shard(const Json& json, const std::string& tensor) const;
  absl::Status CheckShards(const TensorEntry& tensor, int64_t extent_bytes);
  absl::Status CheckAgainstModel(const PackManifest& manifest) const;

  const std::string& what_;
  int64_t extent_end_ = 0;  // of the shards checked so far
};

absl::StatusOr<FileDigest> ManifestParser::File(const Json& json, const char* field) const {
  if (!json.is_object()) {
    return Bad(absl::StrCat(field, " is not an object"));
  }
  JsonReader reader(json, what_);
  FileDigest file;
  file.name = reader.RequiredText("name");
  file.bytes = reader.RequiredInteger("bytes", 0, kMaxBytes);
  const std::optional<uint64_t> hash = HashFromText(json.value("xxh3", Json()));
  if (!reader.status().ok() || !hash) {
    return Bad(absl::StrCat(field, " lacks name, bytes or xxh3"));
  }
  file.xxh3 = *hash;
  return file;
}

absl::StatusOr<ShardEntry> ManifestParser::Shard(const Json& json,
                                                 const std::string& tensor) const {
  const bool numbers = json.is_array() && json.size() == 5 &&
                       std::all_of(json.begin(), json.begin() + 4, [](const Json& number) {
                         return number.is_number_unsigned() &&
                                number.get<uint64_t>() <= static_cast<uint64_t>(kMaxBytes);
                       });
  const std::optional<uint64_t> hash = numbers ? HashFromText(json[4]) : std::nullopt;
  if (!hash) {
    return Bad(absl::StrCat("tensor ", tensor, " has a shard that is not four numbers and a hash"));
  }
  return ShardEntry{.first_output = json[0].get<int64_t>(),
                    .outputs = json[1].get<int64_t>(),
                    .offset = json[2].get<int64_t>(),
                    .bytes = json[3].get<int64_t>(),
                    .xxh3 = *hash};
}

absl::StatusOr<TensorEntry> ManifestParser::Tensor(const Json& json) const {
  if (!json.is_object()) {
    return Bad("tensors holds something that is not an object");
  }
  JsonReader reader(json, what_);
  TensorEntry tensor;
  tensor.name = reader.RequiredText("name");
  const int64_t layout = reader.RequiredInteger("layout", 1, 2);
  const int64_t type = reader.RequiredInteger("type", 0, UINT8_MAX);
  tensor.outputs = reader.RequiredInteger("outputs", 1, INT64_MAX);
  tensor.inputs = reader.RequiredInteger("inputs", 1, INT64_MAX);
  tensor.source_type = reader.Text("source_type", "").substr(0, kMaxSourceTypeBytes);
  const auto shards = json.find("shards");
  if (!reader.status().ok() || shards == json.end() || !shards->is_array()) {
    return Bad(absl::StrCat("tensor ", tensor.name.substr(0, 128), " lacks a field"));
  }
  tensor.layout = static_cast<TensorLayout>(layout);
  const std::optional<DType> dtype = StoredDType(type);
  if (!dtype) {
    return absl::InvalidArgumentError(absl::StrCat(what_, ": tensor ", tensor.name.substr(0, 128),
                                                   " has type ", type,
                                                   ", which this version cannot read"));
  }
  tensor.dtype = *dtype;
  for (const Json& shard : *shards) {
    ASSIGN_OR_RETURN(ShardEntry entry, Shard(shard, tensor.name.substr(0, 128)));
    tensor.shards.push_back(entry);
  }
  return tensor;
}

// Shards follow one another without a gap in rows, and without an overlap in the extent. Called
// once the shape is known to be the model's, so that sizes do not overflow.
absl::Status ManifestParser::CheckShards(const TensorEntry& tensor, int64_t extent_bytes) {
  int64_t next_output = 0;
  for (size_t i = 0; i < tensor.shards.size(); ++i) {
    const ShardEntry& shard = tensor.shards[i];
    const std::string where = absl::StrCat("tensor ", tensor.name, " shard ", i);
    const bool last = i + 1 == tensor.shards.size();
    if (shard.first_output != next_output || shard.outputs < 1 ||
        shard.outputs > tensor.outputs - next_output ||
        (!last && shard.outputs % kPanelOutputs != 0)) {
      return Bad(absl::StrCat(where, " has outputs ", shard.first_output, " + ", shard.outputs,
                              " where ", next_output, " comes next of ", tensor.outputs));
    }
    const int64_t panels = (shard.outputs + kPanelOutputs - 1) / kPanelOutputs;
    const int64_t bytes = tensor.layout == TensorLayout::kVector
                              ? shard.outputs * FloatBytes(DType::kF32)
                              : panels * StoredPanelBytes(tensor.dtype, tensor.inputs);
    if (shard.bytes != bytes) {
      return Bad(
          absl::StrCat(where, " has ", shard.bytes, " bytes, its shape and type make ", bytes));
    }
    if (shard.offset % kShardAlignment != 0 || shard.offset < extent_end_ ||
        shard.bytes > extent_bytes - shard.offset) {
      return Bad(absl::StrCat(where, " lies at ", shard.offset, " + ", shard.bytes,
                              " of an extent of ", extent_bytes, " bytes; a multiple of ",
                              kShardAlignment, " from ", extent_end_, " on is possible"));
    }
    extent_end_ = shard.offset + shard.bytes;
    next_output += shard.outputs;
  }
  if (next_output != tensor.outputs) {
    return Bad(absl::StrCat("tensor ", tensor.name, " has shards for ", next_output, " of ",
                            tensor.outputs, " outputs"));
  }
  return absl::OkStatus();
}

// The tensors must be exactly those of the configuration, in its order; biases may be absent.
absl::Status ManifestParser::CheckAgainstModel(const PackManifest& manifest) const {
  size_t next = 0;
  for (const TensorSpec& spec : ModelTensors(manifest.config)) {
    const TensorEntry* const tensor =
        next < manifest.tensors.size() ? &manifest.tensors[next] : nullptr;
    if (tensor == nullptr || tensor->name != spec.name) {
      if (spec.required) {
        return Bad(absl::StrCat("tensor ", spec.name, " is missing or out of order"));
      }
      continue;
    }
    const bool vector = spec.layout == TensorLayout::kVector;
    if (tensor->layout != spec.layout || tensor->outputs != spec.outputs ||
        tensor->inputs != spec.inputs || (vector && tensor->dtype != DType::kF32)) {
      return Bad(absl::StrCat(
          "tensor ", spec.name, " has layout ", static_cast<int>(tensor->layout), " and shape [",
          tensor->outputs, ", ", tensor->inputs, "]; the model asks for layout ",
          static_cast<int>(spec.layout), " and [", spec.outputs, ", ", spec.inputs, "]"));
    }
    if (!FitsStoredType(tensor->dtype, tensor->inputs)) {
      return Bad(absl::StrCat("tensor ", spec.name, " has type ", DTypeName(tensor->dtype), " and ",
                              tensor->inputs, " inputs, which do not fill its blocks"));
    }
    ++next;
  }
  if (next != manifest.tensors.size()) {
    return Bad(absl::StrCat("tensor ", manifest.tensors[next].name.substr(0, 128),
                            " occurs twice or does not belong to the model"));
  }
  return absl::OkStatus();
}

absl::StatusOr<PackManifest> ManifestParser::Parse(const Json& json) {
  JsonReader reader(json, what_);
  PackManifest manifest;
  manifest.model_name = reader.RequiredText("model_name");
  manifest.source_format = reader.RequiredText("source_format");
  manifest.extent_bytes = reader.RequiredInteger("extent_bytes", 0, kMaxBytes);
  if (!reader.status().ok()) {
    return Bad(std::string(reader.status().message()));
  }
  const Json config_json = json.value("config", Json());
  auto config = ModelConfigFromJson(Dump(config_json));
  if (!config.ok()) {
    return Bad(std::string(config.status().message()));
  }
  manifest.config = *std::move(config);
  const Json sources = json.value("sources", Json());
  const Json tensors = json.value("tensors", Json());
  if (!sources.is_array() || sources.size() > kMaxSources || !tensors.is_array()) {
    return Bad("sources or tensors is not an array");
  }
  for (const Json& source : sources) {
    ASSIGN_OR_RETURN(FileDigest file, File(source, "sources"));
    manifest.sources.push_back(std::move(file));
  }
  for (const Json& tensor : tensors) {
    ASSIGN_OR_RETURN(TensorEntry entry, Tensor(tensor));
    manifest.tensors.push_back(std::move(entry));
  }
  RETURN_IF_ERROR(CheckAgainstModel(manifest));
  for (const TensorEntry& tensor : manifest.tensors) {
    RETURN_IF_ERROR(CheckShards(tensor, manifest.extent_bytes));
  }
  if (reader.Has("tokenizer")) {
    ASSIGN_OR_RETURN(manifest.tokenizer, File(json["tokenizer"], "tokenizer"));
    manifest.has_tokenizer = true;
  }
  if (reader.Has("chat_template")) {
    ASSIGN_OR_RETURN(manifest.chat_template, File(json["chat_template"], "chat_template"));
    manifest.has_chat_template = true;
  }
  return manifest;
}

}  // namespace

std::string PackManifestToJson(PackManifest& manifest) {
  Json json = {{"format", kFormatName},
               {"format_version", manifest.format_version},
               {"model_name", manifest.model_name},
               {"source_format", manifest.source_format},
               {"extent_bytes", manifest.extent_bytes},
               {"config", Json::parse(ModelConfigToJson(manifest.config), nullptr, false)},
               {"sources", Json::array()},
               {"tensors", Json::array()}};
  for (const FileDigest& source : manifest.sources) {
    json["sources"].push_back(FileToJson(source));
  }
  for (const TensorEntry& tensor : manifest.tensors) {
    json["tensors"].push_back(TensorToJson(tensor));
  }
  if (manifest.has_tokenizer) {
    json["tokenizer"] = FileToJson(manifest.tokenizer);
  }
  if (manifest.has_chat_template) {
    json["chat_template"] = FileToJson(manifest.chat_template);
  }
  manifest.digest = DigestOf(Dump(json));
  json[kDigestField] = HashText(manifest.digest);
  return Dump(json);
}

absl::StatusOr<PackManifest> PackManifestFromJson(const std::string& text,
                                                  const std::string& what) {
  ASSIGN_OR_RETURN(Json json, ParseStrictJson(text, what));
  JsonReader reader(json, what);
  if (reader.Text("format", "") != kFormatName) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not the manifest of a pack"));
  }
  const int64_t version = reader.RequiredInteger("format_version", 1, INT32_MAX);
  RETURN_IF_ERROR(reader.status());
  if (version != kPackFormatVersion) {
    return absl::InvalidArgumentError(absl::StrCat(
        what, ": format version ", version, "; this program reads version ", kPackFormatVersion));
  }
  const std::optional<uint64_t> digest = HashFromText(json.value(kDigestField, Json()));
  json.erase(kDigestField);
  const uint64_t actual = DigestOf(Dump(json));
  if (!digest || *digest != actual) {
    return absl::DataLossError(absl::StrCat(what, ": the digest of its content is ",
                                            HashText(actual), ", not what it says"));
  }
  ASSIGN_OR_RETURN(PackManifest manifest, ManifestParser(what).Parse(json));
  manifest.digest = *digest;
  return manifest;
}

}  // namespace nightshift
