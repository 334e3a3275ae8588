#include "engine/model/gguf_config.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

#include "engine/model/forward.h"
#include "engine/model/gguf_experts.h"
#include "engine/model/gguf_keys.h"
#include "engine/model/huggingface_rope.h"
#include "kernels/base/status_macros.h"
#include "kernels/convert.h"

namespace nightshift {
namespace {

constexpr char kDivisorsTensor[] = "rope_freqs.weight";
constexpr char kShortFactorsTensor[] = "rope_factors_short.weight";

// A factor that files of yarn or longrope may name and that we take from elsewhere.
void RefuseUnlessOne(GgufKeys& keys, const char* key) {
  if (keys.Number(key, 1.0) != 1.0) {
    keys.Refuse(key, "is not 1, which is not supported");
  }
}

void ReadYarn(GgufKeys& keys, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.scaling = RopeScaling::kYarn;
  rope.factor = keys.RequiredNumber("rope.scaling.factor");
  rope.original_context_tokens = keys.Required("rope.scaling.original_context_length");
  rope.beta_fast = keys.Positive("rope.scaling.yarn_beta_fast", 32.0);
  rope.beta_slow = keys.Positive("rope.scaling.yarn_beta_slow", 1.0);
  rope.magnitude = YarnMagnitude(rope.factor);
  for (const char* key : {"rope.scaling.attn_factor", "rope.scaling.yarn_attn_factor",
                          "rope.scaling.yarn_ext_factor"}) {
    RefuseUnlessOne(keys, key);
  }
  if (keys.Has("rope.scaling.yarn_log_multiplier")) {
    keys.Refuse("rope.scaling.yarn_log_multiplier", "is set, which these families do not have");
  }
}

// `whole_heads`: the family rotates whole heads only.
void ReadRope(GgufKeys& keys, bool whole_heads, ModelConfig& config) {
  RopeConfig& rope = config.rope;
  rope.theta = keys.Number("rope.freq_base", 10000.0);
  rope.rotary_width = keys.Integer("rope.dimension_count", config.head_width);
  if (whole_heads && rope.rotary_width != config.head_width) {
    keys.Refuse("rope.dimension_count",
                absl::StrCat("is ", rope.rotary_width, ", not the head width ", config.head_width));
  }
  // Older files have only the factor, which means linear scaling.
  const double factor = keys.Number("rope.scaling.factor", keys.Number("rope.scale_linear", 0.0));
  const std::string type = keys.Text("rope.scaling.type", factor > 0.0 ? "linear" : "none");
  if (type == "yarn") {
    ReadYarn(keys, config);
  } else if (type == "linear" && factor > 0.0 && factor != 1.0) {
    rope.scaling = RopeScaling::kLinear;
    rope.factor = factor;
  } else if (type != "none" && type != "linear" && type != "longrope") {
    keys.Refuse("rope.scaling.type", absl::StrCat("is ", type.substr(0, 64),
                                                  "; none, linear, yarn and longrope are "
                                                  "supported"));
  }
  if (type == "longrope" && !keys.HasTensor(kShortFactorsTensor)) {
    keys.Refuse("rope.scaling.type",
                absl::StrCat("is longrope, but ", kShortFactorsTensor, " is missing"));
  }
}

// Of every layer but each `period`-th; 0: of every layer. A file may list the layers or name
// another period.
void ReadWindow(GgufKeys& keys, int64_t period, ModelConfig& config) {
  constexpr char kPattern[] = "attention.sliding_window_pattern";
  const int64_t window = keys.Integer("attention.sliding_window", 0);
  const std::vector<int64_t>* const listed = keys.Integers(kPattern);
  std::vector<bool> layers;
  if (listed != nullptr && static_cast<int64_t>(listed->size()) != config.num_layers) {
    keys.Refuse(kPattern, absl::StrCat("lists ", listed->size(), " layers of ", config.num_layers));
  } else if (listed != nullptr) {
    layers.assign(listed->begin(), listed->end());
  } else {
    period = keys.Integer(kPattern, period);
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      layers.push_back(period == 0 || (layer + 1) % period != 0);
    }
  }
  const bool any = std::find(layers.begin(), layers.end(), true) != layers.end();
  if (any && window > 0 && window < config.context_tokens) {
    config.sliding_window = window;
    config.sliding_layers = std::move(layers);
  }
}

absl::StatusOr<std::vector<float>> ReadFactors(const GgufCheckpoint& checkpoint,
                                               const SourceTensor& table, int64_t pairs) {
  if (table.dtype != DType::kF32 || table.shape != std::vector<int64_t>{pairs}) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor ", table.name, " is not a vector of ", pairs, " F32 numbers"));
  }
  std::vector<float> factors(static_cast<size_t>(pairs));
  RETURN_IF_ERROR(checkpoint.ReadRows(table, 0, std::as_writable_bytes(std::span(factors))));
  return factors;
}

// longrope scales short and long texts differently; the model gets the short factors and the
// context that they are for (huggingface_rope.h).
absl::Status ReadLongRope(const GgufCheckpoint& checkpoint, GgufKeys& keys, SourceModel& model) {
  const SourceTensor* const table = checkpoint.Find(kShortFactorsTensor);
  if (table == nullptr) {
    return absl::OkStatus();
  }
  ModelConfig& config = model.config;
  ASSIGN_OR_RETURN(config.rope.divisors,
                   ReadFactors(checkpoint, *table, config.rope.rotary_width / 2));
  config.rope.scaling = RopeScaling::kDivisors;
  config.rope.magnitude = keys.Positive("rope.scaling.attn_factor", 1.0);
  LimitLongRopeContext(keys.Required("rope.scaling.original_context_length"), model);
  return keys.plain().status();
}

// GGUF stores llama3 scaling as a table of divisors, one a pair; a linear factor multiplies them.
absl::Status ReadDivisors(const GgufCheckpoint& checkpoint, RopeConfig& rope) {
  const SourceTensor* const table = checkpoint.Find(kDivisorsTensor);
  if (table == nullptr) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(rope.divisors, ReadFactors(checkpoint, *table, rope.rotary_width / 2));
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
  const int64_t num_experts =
      general.Integer(absl::StrCat(architecture, ".expert_count").c_str(), 0, kMaxExperts, 0);
  RETURN_IF_ERROR(general.status());
  ASSIGN_OR_RETURN(const Family* const family, FamilyOfGguf(architecture, num_experts > 0));
  const SourceTensor* const embedding = checkpoint.Find("token_embd.weight");
  if (embedding == nullptr) {
    return absl::InvalidArgumentError("tensor token_embd.weight is missing");
  }
  GgufKeys keys(checkpoint, architecture);
  SourceModel model;
  ModelConfig& config = model.config;
  config.family = family->name;
  config.architecture = family->architectures.front();
  config.vocabulary = embedding->shape.front();
  config.num_layers = keys.Required("block_count");
  if (config.num_layers > kMaxLayers) {
    keys.Refuse("block_count", absl::StrCat("is ", config.num_layers, ", above ", kMaxLayers));
    return keys.plain().status();
  }
  config.model_width = keys.Required("embedding_length");
  config.ffn_width = keys.Required("feed_forward_length");
  config.num_heads = keys.Required("attention.head_count");
  config.num_kv_heads = keys.Integer("attention.head_count_kv", config.num_heads);
  config.head_width = keys.Integer("attention.key_length", config.model_width / config.num_heads);
  if (keys.Integer("attention.value_length", config.head_width) != config.head_width) {
    keys.Refuse("attention.value_length", "differs from attention.key_length");
  }
  config.context_tokens = keys.Required("context_length");
  family->set_shape(config);
  config.norm_epsilon = static_cast<float>(
      keys.RequiredNumber(config.norm == NormKind::kRms ? "attention.layer_norm_rms_epsilon"
                                                        : "attention.layer_norm_epsilon"));
  config.attention_scale = static_cast<float>(keys.Positive("attention.scale", 0.0));
  config.attention_softcap = static_cast<float>(keys.Positive("attn_logit_softcapping", 0.0));
  config.logit_softcap = static_cast<float>(keys.Positive("final_logit_softcapping", 0.0));
  for (const char* key :
       {"attention.head_count", "attention.head_count_kv", "feed_forward_length"}) {
    if (keys.Integers(key) != nullptr) {
      keys.Refuse(key, "is an array: layers that differ in shape are not supported");
    }
  }
  ReadRope(keys, family->gguf_pairs_rope_rows, config);
  ReadWindow(keys, family->gguf_window_period, config);
  if (family->complete_gguf != nullptr) {
    family->complete_gguf(keys, config);
  }
  ReadTokens(keys.plain(), config);
  if (num_experts > 0) {
    config.experts = ReadGgufExperts(num_experts, checkpoint, config, keys);
  }
  RETURN_IF_ERROR(keys.plain().status());
  RETURN_IF_ERROR(ReadDivisors(checkpoint, config.rope));
  RETURN_IF_ERROR(ReadLongRope(checkpoint, keys, model));
  RETURN_IF_ERROR(ValidateModelConfig(config));
  return model;
}

}  // namespace nightshift
