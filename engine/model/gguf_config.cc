#include "engine/model/gguf_config.h"

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "kernels/base/status_macros.h"
#include "kernels/convert.h"

namespace nightshift {
namespace {

constexpr int64_t kAnyInteger = INT64_MAX;  // ValidateModelConfig has the real bounds.
constexpr double kAnyNumber = 1e30;
constexpr char kDivisorsTensor[] = "rope_freqs.weight";

// Reads keys that begin with the architecture's name.
class ArchitectureReader {
 public:
  ArchitectureReader(const GgufMetadata& metadata, std::string architecture)
      : reader_(metadata.scalars, "GGUF metadata"), architecture_(std::move(architecture)) {}

  int64_t Required(const char* key) {
    return reader_.RequiredInteger(Full(key).c_str(), 1, kAnyInteger);
  }
  int64_t Integer(const char* key, int64_t fallback) {
    return reader_.Integer(Full(key).c_str(), 0, kAnyInteger, fallback);
  }
  double Number(const char* key, double fallback) {
    return reader_.Number(Full(key).c_str(), 0.0, kAnyNumber, fallback);
  }
  double RequiredNumber(const char* key) {
    return reader_.RequiredNumber(Full(key).c_str(), 0.0, kAnyNumber);
  }
  std::string Text(const char* key, const std::string& fallback) {
    return reader_.Text(Full(key).c_str(), fallback);
  }
  bool Has(const char* key) const { return reader_.Has(Full(key).c_str()); }
  void Refuse(const char* key, const std::string& problem) {
    reader_.Refuse(Full(key).c_str(), problem);
  }
  JsonReader& plain() { return reader_; }

 private:
  std::string Full(const char* key) const { return absl::StrCat(architecture_, ".", key); }

  JsonReader reader_;
  std::string architecture_;
};

void ReadRope(ArchitectureReader& reader, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = reader.Number("rope.freq_base", 10000.0);
  rope.rotary_width = reader.Integer("rope.dimension_count", config.head_width);
  if (rope.rotary_width != config.head_width) {
    reader.Refuse("rope.dimension_count", absl::StrCat("is ", rope.rotary_width,
                                                       ", not the head width ", config.head_width));
  }
  // Older files have only the factor, which means linear scaling.
  const double factor =
      reader.Number("rope.scaling.factor", reader.Number("rope.scale_linear", 0.0));
  const std::string type = reader.Text("rope.scaling.type", factor > 0.0 ? "linear" : "none");
  if (type != "none" && type != "linear") {
    reader.Refuse("rope.scaling.type",
                  absl::StrCat("is ", type.substr(0, 64), "; none and linear are supported"));
  }
  if (type == "linear" && factor > 0.0 && factor != 1.0) {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = factor;
  }
}

// GGUF stores llama3 scaling as a table of divisors, one a pair; a linear factor multiplies them.
absl::Status ReadDivisors(const GgufCheckpoint& checkpoint, RopeConfig& rope) {
  const SourceTensor* const table = checkpoint.Find(kDivisorsTensor);
  if (table == nullptr) {
    return absl::OkStatus();
  }
  const int64_t pairs = rope.rotary_width / 2;
  if (table->dtype != DType::kF32 || table->shape != std::vector<int64_t>{pairs}) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", kDivisorsTensor, " is not a vector of ", pairs, " F32 numbers"));
  }
  rope.divisors.resize(static_cast<size_t>(pairs));
  RETURN_IF_ERROR(checkpoint.ReadRows(*table, 0, std::as_writable_bytes(std::span(rope.divisors))));
  for (float& divisor : rope.divisors) {
    divisor *= static_cast<float>(rope.factor);
  }
  rope.scaling = RopeScaling::kDivisors;
  return absl::OkStatus();
}

void ReadTokens(JsonReader& reader, ModelConfig& config) {
  const int64_t last = config.vocabulary - 1;
  config.bos_token =
      static_cast<int32_t>(reader.Integer("tokenizer.ggml.bos_token_id", 0, last, -1));
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const int32_t token = static_cast<int32_t>(reader.Integer(key, 0, last, -1));
    std::vector<int32_t>& tokens = config.eos_tokens;
    if (token >= 0 && std::find(tokens.begin(), tokens.end(), token) == tokens.end()) {
      tokens.push_back(token);
    }
  }
}

}  // namespace

absl::StatusOr<SourceModel> SourceModelFromGguf(const GgufCheckpoint& checkpoint) {
  const GgufMetadata& metadata = checkpoint.metadata();
  JsonReader general(metadata.scalars, "GGUF metadata");
  const std::string architecture = general.RequiredText("general.architecture");
  RETURN_IF_ERROR(general.status());
  ASSIGN_OR_RETURN(const Family* const family, FamilyOfGguf(architecture));
  const SourceTensor* const embedding = checkpoint.Find("token_embd.weight");
  if (embedding == nullptr) {
    return absl::InvalidArgumentError("tensor token_embd.weight is missing");
  }
  ArchitectureReader reader(metadata, architecture);
  SourceModel model;
  ModelConfig& config = model.config;
  config.family = family->name;
  config.architecture = family->architectures.front();
  config.vocabulary = embedding->shape.front();
  config.num_layers = reader.Required("block_count");
  config.model_width = config.embedding_width = reader.Required("embedding_length");
  config.ffn_width = reader.Required("feed_forward_length");
  config.num_heads = reader.Required("attention.head_count");
  config.num_kv_heads = reader.Integer("attention.head_count_kv", config.num_heads);
  config.head_width = reader.Integer("attention.key_length", config.model_width / config.num_heads);
  if (reader.Integer("attention.value_length", config.head_width) != config.head_width) {
    reader.Refuse("attention.value_length", "differs from attention.key_length");
  }
  config.context_tokens = reader.Required("context_length");
  family->set_shape(config);
  config.norm_epsilon = static_cast<float>(
      reader.RequiredNumber(config.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                          : "attention.layer_norm_epsilon"));
  if (reader.Integer("expert_count", 0) > 0) {
    reader.Refuse("expert_count", "is above 0: mixtures of experts are not supported");
  }
  for (const char* key :
       {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
    if (metadata.integer_arrays.contains(absl::StrCat(architecture, ".", key))) {
      reader.Refuse(key, "is an array: layers that differ in shape are not supported");
    }
  }
  ReadRope(reader, config);
  ReadTokens(reader.plain(), config);
  RETURN_IF_ERROR(reader.plain().status());
  RETURN_IF_ERROR(ReadDivisors(checkpoint, config.rope));
  RETURN_IF_ERROR(ValidateModelConfig(config));
  return model;
}

}  // namespace nightshift
