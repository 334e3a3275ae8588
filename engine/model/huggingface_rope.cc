#include "engine/model/huggingface_rope.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

#include "engine/model/forward.h"

namespace nightshift {
namespace {

constexpr int64_t kAnyInteger = INT64_MAX;  // ValidateModelConfig has the real bounds.
constexpr double kAnyNumber = 1e30;
constexpr char kOriginalContext[] = "original_max_position_embeddings";

// The context that the model was trained on before it was stretched: in the object of the scaling,
// or beside it.
int64_t ReadOriginalContext(JsonReader& scaling, JsonReader& reader, const ModelConfig& config) {
  return scaling.Integer(kOriginalContext, 1, kAnyInteger,
                         reader.Integer(kOriginalContext, 1, kAnyInteger, config.context_tokens));
}

void ReadYarn(JsonReader& scaling, JsonReader& reader, const ModelConfig& config,
              RopeConfig& rope) {
  rope.scaling = RopeScaling::kYarn;
  rope.original_context_tokens = ReadOriginalContext(scaling, reader, config);
  rope.factor = scaling.RequiredNumber("factor", 0.0, kAnyNumber);
  rope.beta_fast = scaling.Number("beta_fast", 0.0, kAnyNumber, 32.0);
  rope.beta_slow = scaling.Number("beta_slow", 0.0, kAnyNumber, 1.0);
  rope.truncate = scaling.Bool("truncate", true);
  if (scaling.Has("mscale") || scaling.Has("mscale_all_dim")) {
    scaling.Refuse("mscale", "is set, which these families do not have");
  }
  rope.magnitude = scaling.Number("attention_factor", 0.0, kAnyNumber, YarnMagnitude(rope.factor));
}

std::vector<float> ReadFactors(JsonReader& scaling, const nlohmann::json& json, const char* name,
                               int64_t pairs) {
  std::vector<float> factors;
  const auto list = json.find(name);
  if (list == json.end() || !list->is_array() || static_cast<int64_t>(list->size()) != pairs) {
    scaling.Refuse(name, absl::StrCat("is not a list of ", pairs, " numbers"));
    return factors;
  }
  for (const nlohmann::json& factor : *list) {
    if (!factor.is_number()) {
      scaling.Refuse(name, "holds something that is not a number");
      return factors;
    }
    factors.push_back(factor.get<float>());
  }
  return factors;
}

// Source: LongRoPE (Ding et al. 2024) as in the Phi-3 release, whose magnitude holds for both
// lists of factors.
void ReadLongRope(JsonReader& scaling, const nlohmann::json& json, JsonReader& reader,
                  SourceModel& model, RopeConfig& rope) {
  ModelConfig& config = model.config;
  const int64_t original = ReadOriginalContext(scaling, reader, config);
  const double stretch = static_cast<double>(config.context_tokens) / static_cast<double>(original);
  const double usual =
      stretch <= 1.0 || original <= 1
          ? 1.0
          : std::sqrt(1.0 + std::log(stretch) / std::log(static_cast<double>(original)));
  rope.scaling = RopeScaling::kDivisors;
  rope.divisors = ReadFactors(scaling, json, "short_factor", rope.rotary_width / 2);
  rope.magnitude = scaling.Number("attention_factor", 0.0, kAnyNumber, usual);
  LimitLongRopeContext(original, model);
}

void ReadScaling(JsonReader& reader, const nlohmann::json& json, const char* name,
                 SourceModel& model, RopeConfig& rope) {
  if (!json.is_object()) {
    reader.Refuse(name, "is not an object");
    return;
  }
  JsonReader scaling(json, name);
  rope.theta = scaling.Number("rope_theta", 0.0, kAnyNumber, rope.theta);
  const std::string type = scaling.Text("rope_type", scaling.Text("type", "default"));
  if (json.contains("full_attention") || json.contains("sliding_attention")) {
    scaling.Refuse("full_attention", "is there: rotation by layer type belongs to Gemma 3");
  } else if (type == "linear" || type == "llama3") {
    rope.scaling = type == "linear" ? RopeScaling::kLinear : RopeScaling::kLlama3;
    rope.factor = scaling.RequiredNumber("factor", 0.0, kAnyNumber);
  } else if (type == "yarn") {
    ReadYarn(scaling, reader, model.config, rope);
  } else if (type == "longrope" || type == "su") {
    ReadLongRope(scaling, json, reader, model, rope);
  } else if (type != "default") {
    reader.Refuse(name, absl::StrCat("has the type ", type.substr(0, 64),
                                     "; default, linear, llama3, yarn and longrope are supported"));
  }
  if (type == "llama3") {
    rope.low_freq_factor = scaling.RequiredNumber("low_freq_factor", 0.0, kAnyNumber);
    rope.high_freq_factor = scaling.RequiredNumber("high_freq_factor", 0.0, kAnyNumber);
    rope.original_context_tokens = scaling.RequiredInteger(kOriginalContext, 1, kAnyInteger);
  }
  if (!scaling.status().ok()) {
    reader.Refuse(name, absl::StrCat("is refused: ", scaling.status().message()));
  }
}

std::vector<bool> ReadLayerTypes(JsonReader& reader, const nlohmann::json& types,
                                 int64_t num_layers) {
  std::vector<bool> sliding;
  if (!types.is_array() || static_cast<int64_t>(types.size()) != num_layers) {
    reader.Refuse("layer_types", absl::StrCat("is not a list of ", num_layers, " layers"));
    return sliding;
  }
  for (const nlohmann::json& type : types) {
    const bool is_sliding = type == "sliding_attention";
    if (!is_sliding && type != "full_attention") {
      reader.Refuse("layer_types",
                    "holds something that is neither full_attention nor "
                    "sliding_attention");
    }
    sliding.push_back(is_sliding);
  }
  return sliding;
}

}  // namespace

void LimitLongRopeContext(int64_t original_tokens, SourceModel& model) {
  int64_t& context = model.config.context_tokens;
  if (context > original_tokens) {
    model.notes.push_back(absl::StrCat(
        "the context is ", original_tokens, " tokens, not ", context,
        ": longrope rotates longer texts differently from the first token on, which is not "
        "supported"));
    context = original_tokens;
  }
}

void ReadRope(JsonReader& reader, const nlohmann::json& config_json, double usual_theta,
              SourceModel& model) {
  RopeConfig& rope = model.config.rope;
  rope.theta = reader.Number("rope_theta", 0.0, kAnyNumber, usual_theta);
  const char* const name = reader.Has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  if (reader.Has(name)) {
    ReadScaling(reader, config_json[name], name, model, rope);
  }
}

void ReadRopeOfLayerType(JsonReader& reader, const nlohmann::json& config_json,
                         const char* layer_type, SourceModel& model, RopeConfig& rope) {
  const nlohmann::json& by_type = config_json["rope_parameters"];
  const auto json = by_type.find(layer_type);
  if (json == by_type.end()) {
    reader.Refuse("rope_parameters", absl::StrCat("lacks ", layer_type));
    return;
  }
  ReadScaling(reader, *json, layer_type, model, rope);
}

void ReadWindow(JsonReader& reader, const nlohmann::json& config_json, ModelConfig& config,
                const std::function<bool(int64_t layer)>& slides) {
  if (!reader.Has("sliding_window")) {
    return;
  }
  const int64_t window = reader.Integer("sliding_window", 1, kAnyInteger, 0);
  std::vector<bool> layers;
  if (reader.Has("layer_types")) {
    layers = ReadLayerTypes(reader, config_json["layer_types"], config.num_layers);
  } else {
    for (int64_t layer = 0; layer < config.num_layers; ++layer) {
      layers.push_back(slides(layer));
    }
  }
  const bool any = std::find(layers.begin(), layers.end(), true) != layers.end();
  if (any && window < config.context_tokens) {
    config.sliding_window = window;
    config.sliding_layers = std::move(layers);
  }
}

}  // namespace nightshift
